"""Reading tables anew: all of a source, whose log lost what comes next, or some of them while changes go on.

What is asked for is written into the source's position, in an epoch like any other: so it is asked for once, and done
also when whoever does it is killed. Whoever reads the source sees that its position is another, and goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headrace.capture.connector import Connector, Description, Position, laid_over
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.errors import SourceError
from headrace.sources.connectors import CONNECTORS
from headrace.sources.running import progress_of
from headrace.sources.secrets import looked_up
from headrace.sources.system_tables import PROGRESS


def begin_anew(loop: Loop, source: Source) -> None:
    """Have a source begin with its tables once more, whatever its position was."""
    connector = _connector(source)
    again = connector.again
    if again is None:
        raise _refused(source, connector, "read anew")
    _move(loop, source, again(_described(source)))


def ask_for_snapshot(loop: Loop, source: Source, tables: Sequence[str]) -> None:
    """Have a source bring all rows of some of its tables, or of all, while their changes go on."""
    connector = _connector(source)
    snapshot = connector.snapshot
    if snapshot is None:
        raise _refused(source, connector, "asked for a snapshot")
    _move(loop, source, snapshot(_described(source), tables, uuid.uuid4().hex))


def _move(loop: Loop, source: Source, advance: Position) -> None:
    core = loop.core

    def work_out() -> Call:
        # The source may have gone on while it was asked, and what it brings next may be in line: in one epoch with
        # that, this would set it back.
        progress = progress_of(core, source.name)
        moved_on = replace(progress, position=laid_over(progress.position, advance))
        return Call({PROGRESS: [{"insert": moved_on.row(source.name, datetime.now(UTC))}]})

    loop.change_alone(work_out)


def _connector(source: Source) -> Connector:
    connector = CONNECTORS.get(source.connector)
    if connector is None or source.state == "Done":
        raise SourceError(f"source {source.name} was read once", hint="drop it and create it anew")
    return connector


def _described(source: Source) -> Description:
    return Description(source.name, source.location, looked_up(source.options), source.table)


def _refused(source: Source, connector: Connector, what: str) -> SourceError:
    return SourceError(
        f"source {source.name} cannot be {what}",
        detail=f"A source from {connector.keyword} has no way to do that.",
        hint=f"DROP SOURCE {source.name} and create it anew",
    )
