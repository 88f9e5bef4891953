"""Tables that sources keep beside those they bring rows into: how far each is, what was refused, and all that came.

They are tables like any other, changed in the epoch of the changes that they are about: so they are right after any
crash, can be queried, followed and read at earlier epochs, and need no format of their own on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headrace.catalog.catalog import Catalog, Table
from headrace.catalog.make import make_table
from headrace.epoch.batch import Changes
from headrace.errors import RelationNameError, SystemTable
from headrace.intake.table import TableContract

PROGRESS = "source_progress"
DEAD_LETTERS = "dead_letters"
SCHEMAS = "source_schemas"

_TEXT, _NUMBER, _TIME = StringType(), LongType(), TimestampType()
_PROGRESS = StructType(
    [
        StructField("source", _TEXT, False),
        StructField("position", _TEXT),
        StructField("received", _NUMBER, False),
        StructField("applied", _NUMBER, False),
        StructField("stale", _NUMBER, False),
        StructField("dead", _NUMBER, False),
        StructField("discarded", _NUMBER, False),
        StructField("recorded", _NUMBER, False),
        StructField("source_at", _TIME),
        StructField("updated_at", _TIME),
    ]
)
_DEAD_LETTERS = StructType(
    [
        StructField("id", _TEXT, False),
        StructField("source", _TEXT, False),
        StructField("table", _TEXT),
        StructField("position", _TEXT),
        StructField("stage", _TEXT),
        StructField("reason", _TEXT),
        StructField("payload", _TEXT),
        StructField("changes", _NUMBER, False),
        StructField("arrived_at", _TIME),
        # Without it some records tell less: that of a delete may be all that it says.
        StructField("key", _TEXT),
    ]
)
_SCHEMAS = StructType(
    [
        StructField("source", _TEXT, False),
        StructField("table", _TEXT, False),
        StructField("described_by", _TEXT, False),
        StructField("columns", _TEXT),
        StructField("note", _TEXT),
        StructField("source_at", _TIME),
        StructField("position", _TEXT),
        StructField("changed_at", _TIME),
    ]
)
RAW_SCHEMA = StructType(
    [
        StructField("event_id", _TEXT, False),
        StructField("operation", _TEXT),
        StructField("before", _TEXT),
        StructField("after", _TEXT),
        StructField("source_at", _TIME),
        StructField("position", _TEXT),
        StructField("arrived_at", _TIME),
        # By which it was told whether it came late: the log, and a text that sorts as its positions do.
        StructField("log_order", _TEXT),
    ]
)


def is_kept(catalog: Catalog, table: Table) -> bool:
    """Whether a home has a table that sources keep; refused where something else has its name."""
    held = catalog.relations.get(table.name)
    if held is None:
        return False
    if isinstance(held, Table) and (held.system or held.contract == table.contract):
        return True
    kind = "table" if isinstance(held, Table) else "view"
    other = (
        "give its rows another name" if table.name in (PROGRESS, DEAD_LETTERS, SCHEMAS) else "name the source otherwise"
    )
    raise RelationNameError(
        f"{table.name} is a {kind} of yours, and sources keep a table of that name",
        hint=f"drop {table.name}, or {other}",
    )


def fitting_letters(catalog: Catalog, kept: Changes) -> Changes:
    """What is kept, with letters as the home's table has them: that of an older one has no key."""
    letters = kept.get(DEAD_LETTERS)
    if not isinstance(letters, Sequence) or "key" in catalog.table(DEAD_LETTERS).schema.names:
        return kept
    return {**kept, DEAD_LETTERS: [_without_key(one) for one in letters]}


def _without_key(change: Any) -> Any:
    row = change.get("insert")
    return change if row is None else {"insert": {name: value for name, value in row.items() if name != "key"}}


def refuse_drop(catalog: Catalog, table: Table) -> None:
    """Refuse to drop what a source still needs; what a source left behind that is gone may go."""
    if not table.system:
        return
    followed = [one.name for one in catalog.sources.values() if one.state != "Done"]
    users = [one for one in followed if table.name in (PROGRESS, DEAD_LETTERS, SCHEMAS, raw_name(one))]
    if users:
        raise SystemTable(
            f"{table.name} is kept by source {', '.join(users)}",
            detail="It can be dropped when no source needs it any more.",
            hint=f"write DROP SOURCE {users[0]} first",
        )


def raw_name(source: str) -> str:
    """The name of the table that keeps all that a source brought."""
    return f"{source}_raw"


def progress_table() -> Table:
    """How far every source is, a row each."""
    return make_table(TableContract(PROGRESS, _PROGRESS, ("source",)), system=True)


def dead_letters_table() -> Table:
    """Changes that could not be applied, with the reason."""
    return make_table(TableContract(DEAD_LETTERS, _DEAD_LETTERS, ("id",)), system=True)


def schemas_table() -> Table:
    """The columns that each source last described for each of its tables, and what was not taken of them."""
    return make_table(TableContract(SCHEMAS, _SCHEMAS, ("source", "table", "described_by")), system=True)


def raw_table(source: str) -> Table:
    """All that a source brought, in the order of its arrival."""
    return make_table(TableContract(raw_name(source), RAW_SCHEMA), system=True)
