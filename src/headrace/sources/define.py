"""CREATE, ALTER, PAUSE, RESUME and DROP SOURCE: what each checks, and what it takes into the home."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.capture.connector import Description, Position
from headrace.catalog.catalog import Catalog, Source, Table, source_definition
from headrace.definitions.adopt import adopt
from headrace.definitions.sources import name_taken, table_into
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.errors import SourceError
from headrace.sources.connectors import CONNECTORS, check
from headrace.sources.running import Sources, shared_tables
from headrace.sources.schema_changes import forgotten
from headrace.sources.secrets import refuse_plain_secrets, secrets_hidden
from headrace.sources.snapshots import move
from headrace.sources.system_tables import (
    PROGRESS,
    SCHEMAS,
    dead_letters_table,
    is_kept,
    progress_table,
    raw_table,
)
from headrace.sql.syntax import AlterSource, CreateSource, SourceAction

_log = logging.getLogger("headrace.sources")


def is_read_whole(statement: CreateSource) -> bool:
    """Whether a source is read whole by its statement; it may be followed from there on."""
    mode = dict(statement.options).get("mode", "snapshot_and_follow")
    return statement.connector == "delta" and mode in ("snapshot", "snapshot_and_follow")


def is_followed(statement: CreateSource) -> bool:
    """Whether a source goes on after its statement."""
    return not (statement.connector == "delta" and dict(statement.options).get("mode") == "snapshot")


@dataclass(frozen=True)
class Planned:
    """What statements come to: sources that are read whole, others that begin empty, and the tables they keep."""

    whole: tuple[CreateSource, ...]
    following: tuple[Source, ...]
    tables: tuple[Table, ...]


def plan_sources(catalog: Catalog, statements: Sequence[CreateSource]) -> Planned:
    """What is to be made of statements, over a catalog that has their tables; or an error that tells why not."""
    followed = [following_source(catalog, one) for one in statements if is_followed(one)]
    tables: list[Table] = []
    if followed:
        tables = [progress_table(), dead_letters_table()]
        tables += [raw_table(one.name) for one in followed if one.options.get("raw", True)]
        tables = [one for one in tables if not is_kept(catalog, one)]
    whole = tuple(one for one in statements if is_read_whole(one))
    named = {one.name for one in whole}
    return Planned(whole, tuple(one for one in followed if one.name not in named), tuple(tables))


def create_sources(core: Core, statements: Sequence[CreateSource]) -> None:
    """Make sources: those that are read whole are read into this epoch, the others begin after it."""
    wanted = [one for one in statements if not (one.if_not_exists and one.name in core.catalog.sources)]
    if wanted:
        planned = plan_sources(core.catalog, wanted)
        adopt(core, planned.tables, sources=planned.whole, following=planned.following)
        shared = shared_tables(core)
        for name in [one.name for one in wanted if one.name in shared]:
            _log.warning("source %s: %s", name, shared[name], extra={"source": name})


def following_source(catalog: Catalog, statement: CreateSource) -> Source:
    """The source that a statement describes; or an error that tells why it cannot be followed."""
    if statement.name in catalog.sources:
        raise name_taken(statement.name)
    connector = CONNECTORS.get(statement.connector)
    if connector is None:
        raise SourceError(
            f"a source from {statement.connector.upper()} is not available",
            hint=f"there are {', '.join(one.keyword for one in CONNECTORS.values())}",
        )
    if not statement.table and not connector.brings_many:
        raise SourceError(
            f"source {statement.name} does not say which table it is for",
            hint=f"write CREATE SOURCE {statement.name} INTO t FROM {connector.keyword} ...",
        )
    table = table_into(catalog, statement.table, connector.brings_many).name if statement.table else ""
    options = dict(statement.options)
    refuse_plain_secrets(options)
    with secrets_hidden(options) as found:
        check(Description(statement.name, statement.location, found, table), connector)
    mode = str(options.pop("mode", "snapshot_and_follow"))
    return Source(statement.name, table, statement.connector, statement.location, mode, options, state="Running")


def alter_source(loop: Loop, statement: AlterSource) -> None:
    """Give a source other options; it goes on where it was."""
    core = loop.core
    source = core.catalog.source(statement.name)
    if "mode" in dict(statement.options):
        raise SourceError(
            f"source {source.name} is of mode {source.mode!r} and stays so",
            detail="The mode says how a source begins, and this one has begun.",
            hint=f"DROP SOURCE {source.name}, and create it anew with the other mode",
        )
    options = {**source.options, **dict(statement.options)}
    refuse_plain_secrets(dict(statement.options))
    connector = CONNECTORS.get(source.connector)
    if connector is None or source.state == "Done":
        raise SourceError(f"source {source.name} was read once", hint="drop it and create it anew")
    if "location" in dict(statement.options) and "*" not in connector.options:
        raise SourceError(
            f"source {source.name} stays where it is",
            detail=f"It has read {source.location} up to a position that means nothing elsewhere.",
            hint=f"DROP SOURCE {source.name}, which keeps its rows, and create it anew with the other location",
        )
    with secrets_hidden(options) as found:
        check(Description(source.name, source.location, found, source.table), connector)
    if options.get("raw", True) and not is_kept(core.catalog, raw := raw_table(source.name)):
        adopt(core, [raw])
    _redefine(loop, replace(source, options=options))


def change_source(loop: Loop, sources: Sources, statement: SourceAction, advance: Position | None = None) -> None:
    """Drop a source, which leaves its tables as they are, pause it, or have it go on, from elsewhere if so told."""
    core = loop.core
    if statement.verb == "drop" and statement.if_exists and statement.name not in core.catalog.sources:
        return
    source = core.catalog.source(statement.name)
    if statement.verb == "drop":
        gone = {PROGRESS: [{"delete": {"source": source.name}}]} if PROGRESS in core.catalog else {}
        if schemas := forgotten(core, source.name):
            gone[SCHEMAS] = schemas
        loop.submit(Call(gone, head={"drop_sources": [source.name]}))
        return
    if source.state == "Done":
        raise SourceError(
            f"source {source.name} cannot be {'paused' if statement.verb == 'pause' else 'resumed'}",
            detail=f"Its mode is 'snapshot', and it was read whole at epoch {source.epoch}.",
            hint=f"nothing is left to do; DROP SOURCE {source.name} forgets it and keeps the rows of {source.table}",
        )
    if advance is not None:
        move(loop, source, advance)
    if statement.verb == "snapshot":
        if source.state == "Running":
            sources.restart(source.name)
        return
    state = "Paused" if statement.verb == "pause" else "Running"
    wanted = replace(source, state=state, error="")
    if wanted != source:
        _redefine(loop, wanted)
    elif state == "Running":
        # It may have stopped by itself.
        sources.restart(source.name)


def forget_source(source: Source, begun: bool) -> None:
    """Take away what a source that was dropped has made elsewhere, such as a slot for which a log would be kept.

    Of one that has never brought anything there is most often nothing: that it cannot be looked for is no failure.
    """
    connector = CONNECTORS.get(source.connector)
    if connector is None or source.state == "Done":
        return
    try:
        with secrets_hidden(source.options) as found:
            connector.forget(Description(source.name, source.location, found, source.table))
    except SourceError as error:
        if begun:
            raise
        _log.warning(
            "%s: %s It never brought anything; %s",
            error.message,
            error.detail,
            error.hint,
            extra={"source": source.name},
        )


def _redefine(loop: Loop, source: Source) -> None:
    loop.submit(Call({}, head={"sources": [source_definition(source)]}))
