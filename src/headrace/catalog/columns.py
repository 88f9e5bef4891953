"""A relation's columns through time: which it had at an epoch, and how rows of other columns are read under them.

Every column of a table has an id that stays with it whatever it is called. So a row of the log that was written under
an older column list is read under a newer one: added columns are NULL, dropped ones are left out, widened ones cast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.ledger.ledger import Entry
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, consolidate


@dataclass(frozen=True)
class Columns:
    """The columns that a relation has from an epoch on.

    Its log begins at `born`. If it `has_cut_content`, what the relation held just before lies in the log as a whole. A
    view that was defined before schemas were kept has none here.
    """

    since: int
    born: int
    schema: StructType | None
    ids: tuple[int, ...]
    has_cut_content: bool = False

    @cached_property
    def arrow(self) -> pa.Schema | None:
        """How its rows travel in Arrow."""
        return None if self.schema is None else arrow_schema(field.dataType for field in self.schema.fields)

    def alike(self, other: Columns) -> bool:
        """Whether a row of one is a row of the other as it is."""
        if self.arrow is None or other.arrow is None:
            return True
        return self.ids == other.ids and self.arrow.equals(other.arrow)

    def goes_on_as(self, other: Columns) -> bool:
        """Whether one who has the rows of these columns needs only the changes to have those of the other."""
        if self.born != other.born or not self.alike(other):
            return False
        return self.schema is None or other.schema is None or self.schema.names == other.schema.names


class ColumnHistory:
    """The columns of all relations, as the ledger's definitions tell; a value that never changes."""

    def __init__(self, known: Mapping[str, tuple[tuple[int, Columns | None], ...]] | None = None) -> None:
        self._known = {} if known is None else known

    def recorded(self, epoch: int, head: Mapping[str, Any]) -> ColumnHistory:
        """The history with what an epoch defined and dropped."""
        if not head.get("drop") and not head.get("define"):
            return self
        known = dict(self._known)
        for name in head.get("drop", ()):
            known[name] = (*known.get(name, ()), (epoch, None))
        for definition in head.get("define", ()):
            name = definition["name"]
            before = self.at(name, epoch - 1)
            fresh = before is None or name in head.get("reset", ())
            schema = StructType.fromJson(definition["schema"]) if "schema" in definition else None
            ids = definition.get("ids", range(len(schema.fields) if schema else 0))
            columns = Columns(
                since=epoch,
                born=epoch if before is None or fresh else before.born,
                schema=schema,
                ids=tuple(ids),
                has_cut_content=name in head.get("closed", ()),
            )
            known[name] = (*known.get(name, ()), (epoch, columns))
        return ColumnHistory(known)

    def at(self, name: str, epoch: int) -> Columns | None:
        """The columns that a relation had at the end of an epoch; None where it was not there."""
        found = [columns for since, columns in self._known.get(name, ()) if since <= epoch]
        return found[-1] if found else None

    def dropped_at(self, name: str, epoch: int) -> int:
        """When a relation that is not there at an epoch was last dropped; 0 if it never was there."""
        return max((at for at, columns in self._known.get(name, ()) if columns is None and at <= epoch), default=0)

    def between(self, name: str, since: int, until: int) -> list[Columns]:
        """The column lists that began after an epoch, up to and including another, in order."""
        return [columns for at, columns in self._known.get(name, ()) if columns is not None and since < at <= until]

    def fresh_id(self, name: str) -> int:
        """An id that no column of a relation ever had."""
        return 1 + max((one for _, columns in self._known.get(name, ()) if columns for one in columns.ids), default=-1)

    def under(self, entries: Iterable[Entry], wanted: Columns) -> list[Entry]:
        """Entries of one relation's log, read under columns of the same log."""
        read: list[Entry] = []
        for entry in entries:
            written = self.at(entry.relation, entry.epoch)
            if written is None or written.alike(wanted):
                read.append(entry)
            else:
                delta = converted(entry.rows, entry.weights, written, wanted)
                read.append(replace(entry, rows=delta.rows, weights=delta.weights))
        return read


def converted(rows: pa.Table, weights: Any, old: Columns, new: Columns) -> Delta:
    """Rows of some columns under others, summed again: rows that differed only in what is left out are now equal."""
    return consolidate(convert(rows, old, new), weights)


def convert(rows: pa.Table, old: Columns, new: Columns) -> pa.Table:
    """Rows of some columns under others, column by column."""
    assert new.arrow is not None
    indexes = {one: index for index, one in enumerate(old.ids)}
    columns: list[pa.ChunkedArray] = []
    for field, one in zip(new.arrow, new.ids, strict=True):
        if one not in indexes:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
            continue
        column = rows.column(indexes[one])
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.table(columns, schema=new.arrow)
