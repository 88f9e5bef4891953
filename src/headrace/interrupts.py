"""Ctrl-C at the right moment: it waits while an epoch is being committed and shown, which takes milliseconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class HeldInterrupts:
    """An interrupt that waits, and what its receiver is to be told; a second one does not wait."""

    def __init__(self, before: Callable[[int, FrameType | None], Any] | None = None) -> None:
        self._before = before
        self._waiting: tuple[int, FrameType | None] | None = None
        self.note = ""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take an interrupt in place of who took it before."""
        assert self._before is not None
        if self._waiting is not None:
            self._before(number, frame)
        self._waiting = number, frame

    def let_go(self) -> None:
        """Hand on the interrupt that waits."""
        if self._waiting is None or self._before is None:
            return
        try:
            self._before(*self._waiting)
        except BaseException as error:
            if self.note:
                error.add_note(self.note)
            raise


@contextmanager
def interrupts_held() -> Generator[HeldInterrupts, None, None]:
    """Inside, Ctrl-C waits until the end, outermost first; only the main thread is ever interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield HeldInterrupts()
        return
    before = signal.getsignal(signal.SIGINT)
    if isinstance(before, HeldInterrupts):
        yield before
        return
    if not callable(before):
        # Ignored, deadly, or taken by someone outside Python: none of them raises anything here.
        yield HeldInterrupts()
        return
    held = HeldInterrupts(before)
    signal.signal(signal.SIGINT, held)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
        held.let_go()
