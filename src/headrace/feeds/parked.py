"""Parked events: what a sink refused again and again, kept in a table until it is sent after all, or let go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headrace.catalog.catalog import PARKED, Catalog, Table
from headrace.catalog.make import make_table
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import FeedError, RelationNameError, SystemTable
from headrace.feeds.batch import Batch, EventForm, Events, Mark
from headrace.feeds.blocked import GivenUp
from headrace.feeds.json_events import event_texts, key_texts
from headrace.intake.arrow import to_arrow
from headrace.intake.reasons import BadValue
from headrace.intake.table import TableContract
from headrace.intake.values import converter
from headrace.reading.access import Condition, find_access
from headrace.reading.held_rows import HeldRows
from headrace.reading.page import Wanted, read_page
from headrace.state.state import BEGIN

Row = Mapping[str, Any]
_TEXT, _NUMBER, _TIME = StringType(), LongType(), TimestampType()
_COLUMNS = StructType(
    [
        StructField("feed", _TEXT, False),
        StructField("sequence", _NUMBER, False),
        StructField("table", _TEXT),
        StructField("key", _TEXT),
        StructField("operation", _TEXT),
        StructField("payload", _TEXT),
        StructField("reason", _TEXT),
        StructField("attempts", _NUMBER),
        StructField("epoch", _NUMBER),
        StructField("parked_at", _TIME),
        # Of the feed, and not of its name: one that was dropped and made anew has other events of the same numbers.
        StructField("feed_id", _TEXT, False),
    ]
)
_KEY = ("feed_id", "sequence")


def parked_table() -> Table:
    """What sinks refused, a row each."""
    return make_table(TableContract(PARKED, _COLUMNS, _KEY), system=True)


def lacks_table(catalog: Catalog) -> bool:
    """Whether the table is still to be made; refused where something else has its name."""
    held = catalog.relations.get(PARKED)
    if held is None:
        return True
    if isinstance(held, Table) and held.system:
        return False
    kind = "table" if isinstance(held, Table) else "view"
    raise RelationNameError(
        f"{PARKED} is a {kind} of yours, and changefeeds keep a table of that name", hint=f"give {PARKED} another name"
    )


def refuse_drop(catalog: Catalog, table: Table) -> None:
    """Refuse to drop the table while there are feeds."""
    if table.system and table.name == PARKED and catalog.feeds:
        raise SystemTable(
            f"{table.name} is kept by changefeed {', '.join(catalog.feeds)}",
            detail="It can be dropped when there is no changefeed any more.",
            hint=f"write DROP CHANGEFEED {next(iter(catalog.feeds))} first",
        )


def park(loop: Loop, feed_id: str, events: Sequence[GivenUp]) -> None:
    """Store refused events durably, in one epoch; an event that is parked already is replaced."""
    known = loop.core.catalog.table(PARKED).schema.names
    rows = [_row_of(feed_id, one.batch, one.reason, one.attempts) for one in events]
    inserts = [{"insert": {name: value for name, value in row.items() if name in known}} for row in rows]
    loop.submit(Call({PARKED: inserts}))


def _row_of(feed_id: str, batch: Batch, reason: str, attempts: int) -> Row:
    form = replace(batch.form, envelope="ours", include_old_values=True)
    payload = event_texts(replace(batch, form=form, made={}))[0].decode()
    return {
        "feed": form.feed,
        "sequence": batch.sequences[0],
        "table": form.table,
        "key": key_texts(batch)[0].decode(),
        "operation": batch.operations[0],
        "payload": payload,
        "reason": reason[:10_000],
        "attempts": attempts,
        "epoch": int(batch.epochs[0]),
        "parked_at": datetime.now(UTC),
        "feed_id": feed_id,
    }


def find_parked(core: Core, feed_id: str | None = None, sequences: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Return the parked events, of all feeds or of one, in order, without work for Spark."""
    relations = core.relations()
    if PARKED not in relations:
        return []
    state, schema = relations[PARKED]
    rows = HeldRows(state, schema.names).piece(BEGIN, state.count + 1).rows.to_pylist()
    chosen = [one for one in rows if feed_id is None or feed_of(core.catalog, one) == feed_id]
    if sequences is not None:
        wanted = set(sequences)
        chosen = [one for one in chosen if one["sequence"] in wanted]
    return sorted(chosen, key=lambda one: (one["feed"], one["sequence"]))


def page_parked(core: Core, name: str, feed_id: str, after: int, limit: int) -> list[dict[str, Any]]:
    """Return a feed's first parked events after a sequence, found by the key of the table."""
    relations = core.relations()
    if PARKED not in relations:
        return []
    state, schema = relations[PARKED]
    # A table of an earlier release has the feed's name alone.
    by, value = ("feed_id", feed_id) if "feed_id" in schema.names else ("feed", name)
    conditions = (Condition(by, "eq", value), Condition("sequence", "gt", after))
    access = find_access((by, "sequence"), (), conditions, ())
    assert access is not None
    return read_page(state, schema, Wanted(access, True, conditions, tuple(schema.names), limit)).rows.to_pylist()


def feed_of(catalog: Catalog, row: Row) -> str:
    """The id of the feed that a parked event is of; a table of an earlier release has the feed's name alone."""
    if "feed_id" in row:
        return row["feed_id"]
    feed = catalog.feeds.get(row["feed"])
    return "" if feed is None else feed.id


def chosen_by(core: Core, where: str) -> list[dict[str, Any]]:
    """The parked events that a condition of SQL names, in order."""
    if not where:
        return find_parked(core)
    relations = core.relations()
    if PARKED not in relations:
        return []
    found = core.sessions.queries.run(f"SELECT * FROM {PARKED} WHERE {where}", relations).to_pylist()
    return sorted(found, key=lambda one: (one["feed"], one["sequence"]))


def discard(loop: Loop, rows: Sequence[Row]) -> Receipt:
    """Let go of parked events for good."""
    gone = [{"delete": _key_of(one)} for one in rows]
    return loop.submit(Call({PARKED: gone}) if gone else Call({}, quiet=True))


def refuse_again(loop: Loop, refused: Sequence[tuple[Row, str]]) -> Receipt:
    """Note why events are still parked."""
    changes = [
        {"update": {**_key_of(one), "reason": reason[:10_000], "attempts": one["attempts"] + 1}}
        for one, reason in refused
    ]
    return loop.submit(Call({PARKED: changes}) if changes else Call({}, quiet=True))


def _key_of(row: Row) -> Row:
    return {name: row[name] for name in (_KEY if "feed_id" in row else ("feed", "sequence"))}


def batch_of(row: Row, form: EventForm) -> Batch:
    """A parked event as it was, under the columns that the relation has now."""
    told = json.loads(row["payload"])
    new = told["new_row"] if row["operation"] != "DELETE" else told["old_row"]
    old = told.get("old_row") or {}
    at = datetime.fromisoformat(told["timestamp"])
    try:
        rows, old_rows = (_rows(one, form.columns) for one in (new, old))
    except BadValue as error:
        raise FeedError(
            f"event {row['sequence']} of changefeed {row['feed']} does not fit the columns of {form.table} any more",
            detail=f"{error}.",
            hint="DISCARD PARKED EVENTS, and RESYNC CHANGEFEED if its row is to be told as it is now",
        ) from None
    event = Events.of_epoch(row["epoch"], at, row["operation"], rows, old_rows)
    return Batch.of(form, event, Mark(row["epoch"], None, row["sequence"]))


def _rows(told: Mapping[str, Any], columns: StructType) -> pa.Table:
    """One row of JSON values as Arrow; a column that it lacks is NULL."""
    values = [None if told.get(one.name) is None else converter(one.dataType)(told[one.name]) for one in columns.fields]
    nullable = StructType([StructField(one.name, one.dataType) for one in columns.fields])
    return to_arrow([tuple(values)], nullable)
