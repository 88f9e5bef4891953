"""How the columns of a source have changed, and the ALTER TABLE that follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql.types import DataType

from headrace.capture.described import DescribedColumn
from headrace.capture.messages import Origin
from headrace.capture.moved_columns import column_for, moved_name, takes
from headrace.intake.table import TableContract
from headrace.sources.schema_policy import Tag
from headrace.sql.syntax import (
    AddColumn,
    AlterColumnType,
    AlterTable,
    ColumnDefinition,
    DropColumn,
    DropNotNull,
    RenameColumn,
)
from headrace.sql.widening import is_wider

Columns = tuple[DescribedColumn, ...]


@dataclass(frozen=True)
class KnownColumns:
    """The columns that a source's table had last, and since when, by its position or its clock."""

    columns: Columns
    order: tuple[int, ...] = ()
    at: datetime | None = None

    def is_after(self, origin: Origin) -> bool:
        """Whether the columns are younger than a change, which may come late from another partition."""
        order = origin.position.order
        if self.order and len(order) == len(self.order):
            return self.order > order
        return self.at is not None and origin.committed_at is not None and self.at > origin.committed_at


@dataclass(frozen=True)
class ColumnChange:
    """One change of a source's column; a renamed one has its former name."""

    tag: Tag
    name: str
    data_type: DataType | None = None
    former: str = ""

    def __str__(self) -> str:
        """The change in words."""
        kind = "" if self.data_type is None else self.data_type.simpleString().upper()
        match self.tag:
            case "add.column":
                return f"column {self.name} {kind} was added"
            case "alter.column.type":
                return f"column {self.name} is {kind} now"
            case "rename.column":
                return f"column {self.former} is called {self.name} now"
            case _:
                return f"column {self.name} was dropped"


def changes_between(
    table: TableContract, known: Columns | None, columns: Columns, renamed: Mapping[str, str]
) -> list[ColumnChange]:
    """What has changed from the columns that a source had to those that it has, where the table has not followed yet.

    Of columns that were never seen before, those count that the table has not: it may have more than its source, and
    other types. `renamed` tells the new names of columns by their former ones, in lower case.
    """
    held = {field.name.lower(): (field.name, field.dataType) for field in table.schema}
    before = {} if known is None else {one.name.lower(): one for one in known}
    after = {one.name.lower(): one for one in columns}
    found: list[ColumnChange] = []
    came: set[str] = set()
    for old, new in renamed.items():
        if old in before and old not in after and new in after and new not in before and old in held:
            came.add(new)
            if new not in held:
                found.append(ColumnChange("rename.column", after[new].name, after[new].data_type, held[old][0]))
    for name, one in after.items():
        if name in came:
            continue
        if name not in held:
            if name not in before:
                found.append(ColumnChange("add.column", one.name, one.data_type))
        elif known is not None and (name not in before or before[name].data_type != one.data_type):
            taken = column_for(held[name][0], one.data_type, held)
            if not takes(held[taken.lower()][1], one.data_type):
                found.append(ColumnChange("alter.column.type", held[name][0], one.data_type))
    gone = [name for name in before if name not in after and name in held]
    renamed_away = {change.former.lower() for change in found if change.tag == "rename.column"}
    found += [ColumnChange("drop.column", held[name][0]) for name in gone if name not in renamed_away]
    return found


def exact_steps(table: TableContract, change: ColumnChange) -> list[AlterTable]:
    """What makes the table's columns what the source's are; it may be refused."""
    name = table.name
    match change.tag:
        case "add.column":
            return [_add(name, change.name, change.data_type)]
        case "alter.column.type":
            return [_widen(name, change)]
        case "rename.column":
            new = change.name
            return [
                RenameColumn(
                    sql="", line=1, column=1, table=name, old=change.former.lower(), new=new.lower(), new_spelled=new
                )
            ]
        case _:
            dropped = change.name.lower()
            return [DropColumn(sql="", line=1, column=1, table=name, column_name=dropped, if_exists=True)]


def kept_steps(table: TableContract, change: ColumnChange) -> list[AlterTable]:
    """What takes the change and takes nothing away: a column that the source has no more stays, and is NULL."""
    name = table.name
    fields = {field.name.lower(): field for field in table.schema}
    match change.tag:
        case "add.column":
            return [_add(name, change.name, change.data_type)]
        case "alter.column.type":
            assert change.data_type is not None
            if is_wider(fields[change.name.lower()].dataType, change.data_type):
                return [_widen(name, change)]
            moved = moved_name(change.name, change.data_type)
            added = [] if moved.lower() in fields else [_add(name, moved, change.data_type)]
            return [*added, *_nullable(table, change.name)]
        case "rename.column":
            return [_add(name, change.name, change.data_type), *_nullable(table, change.former)]
        case _:
            return _nullable(table, change.name)


def _add(table: str, name: str, data_type: DataType | None) -> AddColumn:
    assert data_type is not None
    definition = ColumnDefinition(
        name=name.lower(),
        spelled=name,
        type_text=data_type.simpleString(),
        not_null=False,
        comment=None,
        line=1,
        column=1,
    )
    return AddColumn(sql="", line=1, column=1, table=table, definition=definition)


def _widen(table: str, change: ColumnChange) -> AlterColumnType:
    assert change.data_type is not None
    wanted = change.data_type.simpleString()
    return AlterColumnType(sql="", line=1, column=1, table=table, column_name=change.name.lower(), type_text=wanted)


def _nullable(table: TableContract, name: str) -> list[AlterTable]:
    field = next(one for one in table.schema if one.name.lower() == name.lower())
    if field.nullable or field.name in table.key:
        return []
    return [DropNotNull(sql="", line=1, column=1, table=table.name, column_name=name.lower())]


def told(changes: Sequence[ColumnChange]) -> str:
    """Changes in a sentence."""
    return "; ".join(map(str, changes))
