"""A listener that cannot begin holds no slot among the streams."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.access.grants import Access, Grant
from headrace.errors import HomeBroken
from headrace.serving.feldera.listening import egress
from headrace.serving.streams import Streams


def test_a_listener_that_cannot_begin_leaves_no_slot_taken() -> None:
    def begin(*_: object) -> None:
        raise HomeBroken(7, RuntimeError("no more"))

    async def listen() -> None:
        following = SimpleNamespace(begin=begin, ended=False)
        readings: Any = SimpleNamespace(epoch=7, following=following, catalog=catalog)
        service: Any = SimpleNamespace(readings=readings, streams=Streams(readings, 2), settings=None)
        pipeline: Any = SimpleNamespace(refuse_stopped=lambda: None, stops=0)
        for _ in range(3):
            with pytest.raises(HomeBroken):
                await egress("t", service, pipeline, Access("somebody", (Grant("admin"),)))
        assert service.streams.open == 0

    catalog = SimpleNamespace(get=lambda _: SimpleNamespace(name="t"), relations={})
    asyncio.run(listen())
