"""Rows straight from the home's state: looked up while the request waits, or in a thread where that takes longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fastapi.concurrency import run_in_threadpool
from pyspark.sql.types import StructType

from headrace.reading.access import Access
from headrace.reading.page import Page, Position, Wanted, is_ready, read_page
from headrace.serving.data.parameters import Asked
from headrace.serving.data.shown import Shown
from headrace.state.state import State

# So many rows are found in less time than it takes to hand the work to a thread, whatever else the process does.
_FEW = 200
# Reads that take long, at once: pushes and queries have threads, too.
_LONG_READS = 4


@dataclass(frozen=True)
class Direct:
    """Reads of the states of a home."""

    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LONG_READS))

    async def page(self, state: State, shown: Shown, asked: Asked, access: Access, after: Position | None) -> Page:
        """The rows that are asked for."""
        wanted = Wanted(access, shown.keyed, asked.conditions, asked.fields, asked.limit, asked.offset, after)
        schema: StructType = shown.schema
        if asked.limit <= _FEW and access.kind != "scan" and is_ready(state, schema, access):
            return read_page(state, schema, wanted)
        async with self._turns:
            return await run_in_threadpool(read_page, state, schema, wanted)
