"""Threads that run what a home defines, such as its sources and its feeds: one each, as the newest epoch has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from headrace.errors import HeadraceError


class Runner(Protocol):
    """Runs one definition in a thread of its own."""

    @property
    def runs(self) -> Any:
        """The definition that it runs."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is under way any more."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self, wait: bool = True) -> None:
        """End; who waits does so for a bounded time."""
        ...


D = TypeVar("D")
R = TypeVar("R", bound=Runner)


class Runners(Generic[D, R]):
    """Runs definitions by their names; one that cannot even begin says why, and is in nobody else's way."""

    def __init__(
        self, wanted: Callable[[], Mapping[str, D]], make: Callable[[D, R | None], R], say: Callable[[str, str], None]
    ) -> None:
        # What is to run now; how a runner is made, which waits for the end of the one before it; who is told what
        # cannot begin, and why.
        self._wanted = wanted
        self._make = make
        self._say = say
        self._running: dict[str, R] = {}
        self._stopping: dict[str, R] = {}
        self._unable: dict[str, tuple[D, str]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, name: str) -> R | None:
        """The one that runs what has this name."""
        return self._running.get(name)

    def unable(self, name: str, definition: D) -> str | None:
        """Why a definition cannot begin, if it cannot."""
        known, reason = self._unable.get(name, (None, ""))
        return reason if known == definition else None

    def reconcile(self) -> None:
        """Run what is wanted, as it is defined now, and nothing else."""
        with self._lock:
            if self._closed:
                return
            wanted = self._wanted()
            for name, runner in list(self._running.items()):
                if wanted.get(name) != runner.runs:
                    # Not waited for: a definition may be under way, whose turn the runner waits for.
                    runner.stop(wait=False)
                    self._stopping[name] = self._running.pop(name)
            self._unable.clear()
            for name, definition in wanted.items():
                if name not in self._running:
                    self._begin(name, definition)

    def _begin(self, name: str, definition: D) -> None:
        try:
            runner = self._make(definition, self._stopping.get(name))
        except HeadraceError as error:
            reason = " ".join(part for part in (error.message, error.detail) if part)
            self._unable[name] = definition, reason
            self._say(name, reason)
            return
        self._stopping.pop(name, None)
        self._running[name] = runner
        runner.start()

    def restart(self, name: str) -> None:
        """Begin anew with one, where it is; it may have stopped by itself."""
        with self._lock:
            runner = self._running.pop(name, None)
            if runner is not None:
                runner.stop(wait=False)
                self._stopping[name] = runner
        self.reconcile()

    def wait_for_stopped(self) -> None:
        """Wait until those that were paused or dropped have ended; not while it is one's turn to make epochs."""
        with self._lock:
            stopping = dict(self._stopping)
        for runner in stopping.values():
            runner.stop()
        with self._lock:
            # One that does not end is still waited for by the next of its name.
            for name, runner in stopping.items():
                if runner.has_ended and self._stopping.get(name) is runner:
                    del self._stopping[name]

    def close(self) -> None:
        """Have all finish what is under way, and begin nothing more."""
        with self._lock:
            self._closed = True
            runners = [*self._running.values(), *self._stopping.values()]
        for runner in runners:
            runner.stop(wait=False)
        for runner in runners:
            runner.stop()
