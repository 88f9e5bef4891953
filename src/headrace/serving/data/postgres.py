"""Rows from a table of PostgreSQL that a changefeed mirrors: by a pool of connections, in one statement each.

Whatever PostgreSQL cannot answer is left to the home's own state, which holds the same rows and newer ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DoubleType, FloatType, StringType

from headrace.errors import SetupError
from headrace.json_forms import json_form
from headrace.reading.access import Access, find_access
from headrace.reading.page import Position
from headrace.reading.ranks import of_rank, ranks
from headrace.secrets import is_reference, referred_to
from headrace.serving.data.parameters import Asked
from headrace.serving.data.shown import Shown
from headrace.serving.data.tables import ServingTable, database_of
from headrace.serving.data.undelivered import Undelivered
from headrace.settings import Settings
from headrace.state.arrow_types import arrow_type

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

_log = logging.getLogger("headrace.serving")
_CONNECT_SECONDS = 2.0
_STATEMENT_MS = "5000"
# After a failure everything comes from the home for so long.
_REST_SECONDS = 5.0
_MOST_WAYS = 1_000


@dataclass(frozen=True)
class FeedMark:
    """The last epoch whose events are all in a table, and the number of the last event that is."""

    epoch: int
    sequence: int
    # Changes with every event that arrives.
    version: str = ""


@dataclass(frozen=True)
class TableRows:
    """Rows of a page as JSON takes them, how far the table is, and whether others follow."""

    rows: list[dict[str, Any]]
    mark: FeedMark
    more: bool
    # The same rows with the columns of the order.
    found: Sequence[Sequence[Any]]


@dataclass(frozen=True, eq=False)
class Way:
    """How a table answers questions of one kind: by which index, in which words, and what is done with the rows."""

    table: ServingTable
    shown: Shown
    access: Access
    # Those that are asked for, and behind them those of the order.
    columns: tuple[str, ...]
    fields: tuple[str, ...]
    statement: str

    @cached_property
    def _floats(self) -> dict[int, bool]:
        """Which columns are FLOAT or DOUBLE, and whether they are FLOAT: only these need more than their name."""
        kinds = [self.shown.kinds[name] for name in self.fields]
        return {
            index: isinstance(kind, FloatType)
            for index, kind in enumerate(kinds)
            if isinstance(kind, (FloatType, DoubleType))
        }

    def json_rows(self, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """Rows in the one JSON form."""
        fields, floats = self.fields, self._floats
        if floats:
            rows = [
                [
                    value if index not in floats or value is None else _float(value, floats[index])
                    for index, value in enumerate(row)
                ]
                for row in rows
            ]
        return [dict(zip(fields, row, strict=False)) for row in rows]

    def position(self, row: Sequence[Any]) -> Position:
        """The place of a row in the order, as a cursor keeps it."""
        types = [arrow_type(self.shown.kinds[one.name]) for one in self.access.order]
        # Decimals come as text, which is their JSON form.
        values = [
            Decimal(one) if pa.types.is_decimal(kind) and one is not None else one
            for one, kind in zip((row[self.columns.index(one.name)] for one in self.access.order), types, strict=True)
        ]
        arrays = [pa.chunked_array([pa.array([value], kind)]) for value, kind in zip(values, types, strict=True)]
        return Position(tuple(ranks(one)[0] for one in arrays), (0, 0), 1)


class Tables:
    """The PostgreSQL from which relations are served; opened by the first who asks."""

    def __init__(self, dsn: str, connections: int) -> None:
        self.database = database_of(dsn)
        self._dsn = dsn
        self._connections = connections
        self._opening = asyncio.Lock()
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._rests_until = 0.0
        self._ways: dict[Any, Way | None] = {}
        self.undelivered = Undelivered()

    @property
    def rests(self) -> bool:
        """Whether it failed a moment ago."""
        return time.monotonic() < self._rests_until

    async def close(self) -> None:
        """Let go of all connections."""
        if self._pool is not None:
            await self._pool.close()

    async def mark(self, table: ServingTable) -> FeedMark | None:
        """Return the mark of a table; None if the table is not whole now, or PostgreSQL does not answer."""
        from headrace.serving.data.keyset import mark_sql

        found = await self._fetched(mark_sql(table), [table.feed_id])
        return _mark(found[0]) if found else None

    def way(self, table: ServingTable, shown: Shown, asked: Asked) -> Way | None:
        """How a table answers a question of this kind; None if it cannot. Worked out once for all values."""
        compared = tuple((one.column, one.operator) for one in asked.conditions)
        name = shown, table, asked.fields, compared, asked.order
        if name not in self._ways:
            if len(self._ways) >= _MOST_WAYS:
                self._ways.clear()
            self._ways[name] = _way(table, shown, asked)
        return self._ways[name]

    async def page(self, way: Way, asked: Asked, after: Position | None) -> TableRows | None:
        """The rows that are asked for; None if the table is not whole now, or PostgreSQL does not answer."""
        statement: Any = way.statement
        parameters = [one.value for one in asked.conditions]
        if after is not None:
            from headrace.serving.data.keyset import page_sql

            place = _values(way.shown, way.access, after)
            statement, parameters = page_sql(
                way.table, way.shown.schema, way.columns, asked.conditions, way.access.order, place
            )
        found = await self._fetched(statement, [way.table.feed_id, *parameters, asked.limit + 1, asked.offset])
        width = len(way.columns)
        mark = _mark(found[0][width + 1 :]) if found else None
        if found is None or mark is None:
            return None
        if not found[0][width]:
            found = []
        return TableRows(way.json_rows(found[: asked.limit]), mark, len(found) > asked.limit, found)

    async def _fetched(self, statement: Any, parameters: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        import psycopg
        from psycopg_pool import PoolTimeout, TooManyRequests

        try:
            pool = self._pool or await self._opened()
            connection = await pool.getconn()
            try:
                # Each statement is a transaction of its own; the pool looks what became of it.
                return await (await connection.execute(statement, parameters)).fetchall()
            finally:
                await pool.putconn(connection)
        except (psycopg.DataError, psycopg.ProgrammingError) as error:
            # It is of this question, such as a NUL in a text: others are answered.
            _log.info("the serving PostgreSQL does not take a question, and the home does: %s", type(error).__name__)
            return None
        except (PoolTimeout, TooManyRequests, psycopg.Error) as error:
            if not self.rests:
                _log.warning("the serving PostgreSQL does not answer, and the home does: %s", type(error).__name__)
            self._rests_until = time.monotonic() + _REST_SECONDS
            return None

    async def _opened(self) -> AsyncConnectionPool[AsyncConnection[Any]]:
        from psycopg_pool import AsyncConnectionPool

        async with self._opening:
            if self._pool is None:
                pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
                    self._dsn,
                    kwargs={"autocommit": True, "connect_timeout": int(_CONNECT_SECONDS)},
                    min_size=1,
                    max_size=self._connections,
                    open=False,
                    timeout=_CONNECT_SECONDS,
                    max_waiting=64 * self._connections,
                    configure=_configured,
                    name="headrace-data",
                )
                await pool.open()
                self._pool = pool
            return self._pool


def tables_of(settings: Settings) -> Tables | None:
    """The PostgreSQL that the settings name, if they do."""
    reference = settings.data_postgres
    if reference is None:
        return None
    if not is_reference(reference):
        raise SetupError(
            "data_postgres would keep a password in the settings", hint="say where the URL lies: env:NAME or file:/path"
        )
    dsn = str(referred_to("data_postgres", reference, SetupError, "start the server again"))
    try:
        import psycopg_pool  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise SetupError("psycopg is not installed", hint="pip install 'headrace[postgres]'") from error
    return Tables(dsn, settings.data_postgres_connections)


def _way(table: ServingTable, shown: Shown, asked: Asked) -> Way | None:
    from headrace.serving.data.keyset import page_sql

    access = _access(table, shown, asked)
    if access is None:
        return None
    columns = tuple(dict.fromkeys([*asked.fields, *(one.name for one in access.order)]))
    statement, _ = page_sql(table, shown.schema, columns, asked.conditions, access.order, None)
    return Way(table, shown, access, columns, asked.fields, statement.as_string(None))


def _access(table: ServingTable, shown: Shown, asked: Asked) -> Access | None:
    """The way to rows by the indexes that a table has; None if it has none, or texts would be in another order."""
    found = find_access(table.keys, table.indexes, asked.conditions, asked.order)
    if found is None or not found.order:
        return None
    ranged = {one.column for one in asked.conditions if one.operator != "eq"}
    # PostgreSQL orders text by its language, so that such an index is none for an order by bytes.
    texts = [one for one in (*ranged, found.order[0].name) if isinstance(shown.kinds[one], StringType)]
    return None if texts and found.kind != "key" else found


def _values(shown: Shown, access: Access, after: Position) -> list[Any]:
    types = [arrow_type(shown.kinds[one.name]) for one in access.order]
    return [of_rank(rank, kind)[0].as_py() for rank, kind in zip(after.ranks, types, strict=True)]


def _mark(row: tuple[Any, ...]) -> FeedMark | None:
    epoch, sequence, scan, version = row
    # During a scan into the table itself, some rows are not there yet.
    return None if epoch is None or scan == "direct" else FeedMark(epoch, sequence or 0, version or "")


def _float(value: float, single: bool) -> Any:
    return json_form(float(np.float32(value)) if single else float(value))


async def _configured(connection: AsyncConnection[Any]) -> None:
    from psycopg.types.string import TextLoader

    # As text a decimal has its JSON form already.
    connection.adapters.register_loader("numeric", TextLoader)
    await connection.execute("SET TIME ZONE 'UTC'")
    await connection.execute("SET default_transaction_read_only = on")
    await connection.execute("SELECT set_config('statement_timeout', %s, false)", (_STATEMENT_MS,))
