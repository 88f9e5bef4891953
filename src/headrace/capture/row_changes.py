"""From images of a row before and after to changes that the intake takes."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.capture.messages import Change, Origin, Row, RowChange, Undecodable
from headrace.capture.rows import Image
from headrace.intake.table import TableContract

_NO_IMAGE = Image({}, frozenset())


def created(after: Image, origin: Origin, table: TableContract | None, *, read: bool = False) -> RowChange:
    """A row that is new, or that was read where it lay."""
    if after.unavailable:
        # The row of a key that changed: what it keeps lay under the old key.
        changes = updated(None, after, origin, table).changes
    else:
        changes = ({"insert": after.row},)
    return RowChange("read" if read else "create", changes, None, after.whole, after.unavailable, origin)


def updated(
    before: Image | None, after: Image, origin: Origin, table: TableContract | None, *, part: bool = False
) -> RowChange:
    """A row that has changed; `part` if what the image does not name stays as it is."""
    before = before or _NO_IMAGE
    changes: list[Change] = []
    if table is not None and not table.key:
        changes.append({"delete": _whole(before, table)})
    elif _moved(before.row, after.row, table):
        changes.append({"delete": _carried(before.row, after.row, table)})
    kept = after.unavailable
    if part and table is not None:
        kept = kept.union(name for name in table.schema.names if name not in after.row)
    # What did not change is what it was, where the record tells.
    row = {**after.row, **{name: before.row[name] for name in kept if name in before.row}}
    kept = kept.difference(row)
    changes.append({"update" if kept else "insert": row})
    whole = {**row, **after.left_out} if after.left_out else row
    return RowChange("update", tuple(changes), before.whole or None, whole, kept, origin)


def deleted(before: Image, origin: Origin, table: TableContract | None) -> RowChange:
    """A row that is gone."""
    if table is not None and not table.key:
        row = _whole(before, table)
    else:
        row = _carried(before.row, before.row, table)
    return RowChange("delete", ({"delete": row},), before.whole, None, before.unavailable, origin)


def deleted_key(key: Row, table: TableContract | None) -> tuple[Change, ...]:
    """The delete of a key, where a key alone is enough to delete a row of the table; else nothing."""
    if table is None or not table.key or table.sequence is not None:
        return ()
    if any(key.get(name) is None for name in table.key):
        return ()
    return ({"delete": {name: key[name] for name in table.key}},)


def _moved(before: Row, after: Row, table: TableContract | None) -> bool:
    """Whether a row has another key now, as far as the images tell."""
    names: Iterable[str] = () if table is None else table.key
    return any(before.get(name) is not None and name in after and before[name] != after[name] for name in names)


def _carried(before: Row, after: Row, table: TableContract | None) -> Row:
    """What a delete by key names: the key as it was, and the sequence of the change."""
    if table is None:
        return before
    sequence = () if table.sequence is None else (table.sequence,)
    names = [name for name in table.key if name in before]
    return {name: before[name] for name in names} | {name: after[name] for name in sequence if name in after}


def _whole(before: Image, table: TableContract) -> Row:
    """The row as it was, which a table without a key must know to let it go."""
    lacking = [name for name in table.schema.names if name not in before.row]
    if lacking:
        raise Undecodable(
            f"the row before the change lacks {', '.join(lacking[:5])}, and table {table.name} has no key to find it by"
        )
    return before.row
