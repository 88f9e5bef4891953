"""Reading tables anew: all of a source, whose log lost what comes next, or some of them while changes go on.

What is asked for is written into the source's position, in an epoch like any other: so it is asked for once, and done
also when whoever does it is killed. Whoever reads the source sees that its position is another, and goes on from there.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime

from headrace.capture.connector import Connector, Description, Position, laid_over
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.errors import SourceError
from headrace.sources.connectors import CONNECTORS
from headrace.sources.running import progress_of
from headrace.sources.secrets import looked_up
from headrace.sources.system_tables import PROGRESS
from headrace.sql.syntax import SourceAction


def asked_of(core: Core, statement: SourceAction) -> Position | None:
    """What a statement that reads tables anew lays over its source's position, as the source itself tells it.

    It is asked while others make epochs: a broker that does not answer holds up nobody else. None if nothing is read.
    """
    source = core.catalog.sources.get(statement.name)
    if source is None or not (statement.with_snapshot or statement.verb == "snapshot"):
        return None
    connector = _connector(source)
    if statement.with_snapshot:
        if connector.again is None:
            raise _refused(source, connector, "read anew")
        return connector.again(_described(source))
    if connector.snapshot is None:
        raise _refused(source, connector, "asked for a snapshot")
    return connector.snapshot(_described(source), statement.tables, uuid.uuid4().hex)


def move(loop: Loop, source: Source, advance: Position) -> None:
    """Have a source go on from a position that is laid over its own."""
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
