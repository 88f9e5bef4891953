"""Tables that sources keep beside those they bring rows into: how far each is, what was refused, and all that came.

They are tables like any other, changed in the epoch of the changes that they are about: so they are right after any
crash, can be queried, followed and read at earlier epochs, and need no format of their own on disk.
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headrace.catalog.catalog import Table
from headrace.catalog.make import make_table
from headrace.intake.table import TableContract

PROGRESS = "source_progress"
DEAD_LETTERS = "dead_letters"

_TEXT, _NUMBER, _TIME = StringType(), LongType(), TimestampType()
_PROGRESS = StructType(
    [
        StructField("source", _TEXT, False),
        StructField("position", _TEXT),
        StructField("received", _NUMBER, False),
        StructField("applied", _NUMBER, False),
        StructField("stale", _NUMBER, False),
        StructField("dead", _NUMBER, False),
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
        StructField("arrived_at", _TIME),
    ]
)
_RAW = StructType(
    [
        StructField("event_id", _TEXT, False),
        StructField("operation", _TEXT),
        StructField("before", _TEXT),
        StructField("after", _TEXT),
        StructField("source_at", _TIME),
        StructField("position", _TEXT),
        StructField("arrived_at", _TIME),
    ]
)


def raw_name(source: str) -> str:
    """The name of the table that keeps all that a source brought."""
    return f"{source}_raw"


def progress_table() -> Table:
    """How far every source is, a row each."""
    return make_table(TableContract(PROGRESS, _PROGRESS, ("source",)))


def dead_letters_table() -> Table:
    """Changes that could not be applied, with the reason."""
    return make_table(TableContract(DEAD_LETTERS, _DEAD_LETTERS, ("id",)))


def raw_table(source: str) -> Table:
    """All that a source brought, in the order of its arrival."""
    return make_table(TableContract(raw_name(source), _RAW))
