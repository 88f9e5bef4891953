"""Rows with weights: so many inserts, or so many deletes if the weight is negative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from headrace.capture.formats.json_records import decode_record
from headrace.capture.messages import Message, NoChange, RowChange, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.intake.reasons import BadValue
from headrace.intake.table import TableContract

# One change of weight 1,000,000,000 is a short line; what it stands for would fill the memory.
LARGEST_WEIGHT = 10_000


def weight_of(value: Any) -> tuple[int, Any]:
    """The weight of a value, within bounds, and its row."""
    if not isinstance(value, dict) or cast("dict[str, Any]", value).keys() != {"weight", "data"}:
        raise Undecodable('a weighted change is {"weight": number, "data": row}')
    weight, row = cast("dict[str, Any]", value)["weight"], cast("dict[str, Any]", value)["data"]
    if type(weight) is not int:
        raise Undecodable("a weight is a whole number")
    if abs(weight) > LARGEST_WEIGHT:
        raise Undecodable(f"a weight is from -{LARGEST_WEIGHT} to {LARGEST_WEIGHT}")
    return weight, row


def changes_of(value: Any, judge: Callable[[object], object] = lambda _: None) -> Sequence[Any]:
    """The changes of one value; one of weight 0 is none, but `judge` sees its row and may refuse it by `BadValue`."""
    weight, row = weight_of(value)
    if weight == 0:
        try:
            judge({"insert": row})
        except BadValue as bad:
            raise Undecodable(bad.reason, "values") from None
    return [{"insert" if weight > 0 else "delete": row}] * abs(weight)


class Weighted:
    """Reads the records of one table; a tombstone deletes the row that its key names."""

    def __init__(self, table: TableContract | None) -> None:
        self._table = table

    def decode(self, record: Record) -> Message:
        """What a record says."""
        return decode_record(record, self._table, self.decode_json)

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        changes = changes_of(value) if self._table is None else changes_of(value, self._table.decode)
        row = value["data"]
        if not changes:
            return NoChange("empty")
        if "insert" in changes[0]:
            return RowChange("create", tuple(changes), None, row)
        return RowChange("delete", tuple(changes), row)


def decoder(table: TableContract | None, _: FormatOptions) -> Weighted:
    """What reads the records of a table."""
    return Weighted(table)
