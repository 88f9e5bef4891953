"""The threads of a home in which its views are worked out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ViewThreads:
    """As many as there are cores: views that do not read each other are worked out side by side, fills one by one."""

    def __init__(self) -> None:
        cores = max(2, os.cpu_count() or 2)
        self._pool = ThreadPoolExecutor(max_workers=cores, thread_name_prefix="headrace-view")
        # A fill uses all cores by itself, and memory too.
        self.one_fill = threading.Lock()

    def submit(self, work_out: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have something worked out."""
        return self._pool.submit(work_out, *args, **kwargs)

    def close(self) -> None:
        """End them, once what they work at is done."""
        self._pool.shutdown()
