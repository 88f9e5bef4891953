"""Sources at work over a home in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from headrace.capture.connector import Arrival, Connector, Description, Lag, Position
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.sources.bulk import Backlog
from headrace.sources.decoders import Decoders
from headrace.sources.runner import Runner
from headrace.sources.running import progress_of
from headrace.sources.secrets import looked_up
from headrace.sources.system_tables import dead_letters_table, progress_table, raw_table
from tests.small_engine import Host, table

AnyHost = TypeVar("AnyHost", bound=Host)


class Listed:
    """A source that has so many records."""

    def __init__(self, arrivals: Sequence[Arrival], _: Description, position: Position) -> None:
        self._left = list(arrivals)[int(position.get("at", 0)) :]

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        taken, self._left = self._left[:most], self._left[most:]
        if not taken:
            time.sleep(0.01)
        return taken

    def confirm(self, position: Position) -> None:
        pass

    def lag(self) -> Lag:
        return Lag(len(self._left))

    def close(self) -> None:
        pass


def source_home(kind: type[AnyHost] = Host) -> AnyHost:
    """A home with a table t and all that a source s needs."""
    return kind(table("t"), progress_table(), dead_letters_table(), raw_table("s"))


def runner_of(loop: Loop, source: Source, connector: Connector, backlog: Backlog | None = None) -> Runner:
    """What runs a source all of whose records are for the table t."""
    description = Description(source.name, source.location, looked_up(source.options))
    decoders = Decoders(loop.core, source, connector)
    read = partial(progress_of, loop.core, source.name)
    return Runner(loop, source, connector, description, lambda _: "t", decoders, read, backlog=backlog)


def inserts(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    """What a source brings that inserts so many rows."""
    return [
        Arrival(Record(b"%d" % at, topic="t", offset=at), {"at": at + 1}, RowChange("create", ({"insert": row},)))
        for at, row in enumerate(rows)
    ]


def runner_over(host: Host, rows: Sequence[dict[str, Any]], **options: Any) -> Runner:
    """What runs a source that inserts so many rows."""
    source = Source("s", "t", "listed", "", "", options, state="Running")
    return runner_of(Loop(host), source, Connector("LISTED", {}, partial(Listed, inserts(rows))))
