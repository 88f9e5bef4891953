"""Servers of tests that end with the block in which they are used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Stopped(ABC):
    """Used in a with statement, and stopped at its end."""

    @abstractmethod
    def stop(self) -> None:
        """End it, and leave nothing behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
