"""Work that many streams ask for at once, done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Run(Protocol):
    """How work is done off the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """What the work comes to."""
        ...


class Shared:
    """What streams read and write, by name: one does it, the others wait for the same; texts are kept for a while."""

    def __init__(self, run: Run, room: int) -> None:
        self._run = run
        self._room = room
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}
        self._texts: OrderedDict[Hashable, bytes] = OrderedDict()
        self._size = 0

    async def read(self, name: Hashable, work: Callable[[], T]) -> T:
        """What the work of this name comes to, with all who ask while it is under way."""
        doing = self._under_way.get(name)
        if doing is None:
            doing = self._under_way[name] = asyncio.ensure_future(self._run(work))
            doing.add_done_callback(lambda done: self._is_done(name, done))
        # Who hangs up leaves; the others still wait for it.
        return await asyncio.shield(doing)

    def _is_done(self, name: Hashable, done: asyncio.Future[Any]) -> None:
        del self._under_way[name]
        if not done.cancelled():
            # Nobody may be left to hear of an error.
            done.exception()

    async def text(self, name: Hashable, write: Callable[[], bytes]) -> bytes:
        """The text of this name, written once as long as there is room for it."""
        text = self._texts.get(name)
        if text is None:
            text = await self.read(name, write)
            self._keep(name, text)
        else:
            self._texts.move_to_end(name)
        return text

    def _keep(self, name: Hashable, text: bytes) -> None:
        if name in self._texts:
            return
        self._texts[name] = text
        self._size += len(text)
        while self._size > self._room:
            self._size -= len(self._texts.popitem(last=False)[1])
