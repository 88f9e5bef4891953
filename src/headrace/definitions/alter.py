"""ALTER TABLE: another column list for the same rows, in one epoch; the table's log goes on.

Rows of the log are read under the new columns by their ids (columns.py). Only what DROP COLUMN takes away cannot be
read back that way, so the table as it was is logged beside, for readers of older epochs. Views keep the columns that
they were written for; those whose inputs moved or became wider are made again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.catalog.catalog import Catalog, Table, View
from headrace.catalog.columns import Columns, converted
from headrace.catalog.make import column_field, column_type, make_table
from headrace.definitions.adopt import LogDecisions, decide_logs, fill_views, leave_names, remake
from headrace.definitions.recover import table_definition, view_definition
from headrace.epoch.core import Core
from headrace.epoch.work import Work
from headrace.errors import RelationNameError, StatementError
from headrace.intake.table import TableContract
from headrace.ledger.names import cut_content_name
from headrace.sql.resolve import columns_read, register
from headrace.sql.syntax import AddColumn, AlterColumnType, AlterTable, DropColumn, DropNotNull, RenameColumn
from headrace.sql.widening import is_wider, wider_types
from headrace.state.delta import consolidate
from headrace.state.store import Store


@dataclass(frozen=True)
class _Altered:
    """A table's new columns, and what they mean for those who read it: the ids of those that hold other values now."""

    contract: TableContract
    ids: tuple[int, ...]
    dropped: bool = False
    widened: frozenset[int] = frozenset()


def alter_table(core: Core, *statements: AlterTable) -> None:
    """Give a table another column list, by all of these changes in one epoch; or refuse them all with a reason."""
    table = core.catalog.open_table(statements[0].table)
    altered = _Altered(table.contract, table.ids)
    for statement in statements:
        # As the table will be after the changes before this one; it holds what it held.
        draft = replace(table, contract=altered.contract, ids=altered.ids)
        step = _alter(core, draft, statement)
        if step is not None:
            altered = replace(
                step, dropped=altered.dropped or step.dropped, widened=altered.widened.union(step.widened)
            )
    if altered != _Altered(table.contract, table.ids):
        _adopt(core, table, altered)


def _alter(core: Core, table: Table, statement: AlterTable) -> _Altered | None:
    if isinstance(statement, AddColumn):
        return _add(core, table, statement)
    if isinstance(statement, RenameColumn):
        return _rename(core, table, statement)
    if isinstance(statement, DropColumn):
        return _drop(core, table, statement)
    if isinstance(statement, DropNotNull):
        return _drop_not_null(table, statement)
    assert isinstance(statement, AlterColumnType)
    return _widen(core, table, statement)


def _add(core: Core, table: Table, statement: AddColumn) -> _Altered:
    column = statement.definition
    _refuse_taken(table, column.spelled, statement)
    if column.not_null and table.store.snapshot().count:
        raise StatementError(
            f"column {column.spelled} would be NULL in the rows of {table.name}, but it is NOT NULL",
            hint="leave NOT NULL out; the rows that are there have no value for a new column",
            line=column.line,
            column=column.column,
        )
    fields = [*table.schema.fields, column_field(core.sessions.catalyst, column)]
    fresh = max(core.catalog.history.fresh_id(table.name), 1 + max(table.ids))
    return _Altered(_contract(table, fields), (*table.ids, fresh))


def _rename(core: Core, table: Table, statement: RenameColumn) -> _Altered | None:
    index = _column_index(table, statement.old, statement)
    old = table.schema.fields[index]
    if old.name == statement.new_spelled:
        return None
    if old.name.lower() != statement.new:
        _refuse_taken(table, statement.new_spelled, statement)
    _refuse_read(core, table, index, "renamed")
    fields = list(table.schema.fields)
    fields[index] = StructField(statement.new_spelled, old.dataType, old.nullable)
    return _Altered(_contract(table, fields), table.ids)


def _drop(core: Core, table: Table, statement: DropColumn) -> _Altered | None:
    known = {name.lower() for name in table.schema.names}
    if statement.if_exists and statement.column_name not in known:
        return None
    index = _column_index(table, statement.column_name, statement)
    name = table.schema.names[index]
    if name in table.contract.key or name == table.contract.sequence:
        role = "the key" if name in table.contract.key else "SEQUENCE BY"
        raise RelationNameError(
            f"column {name} of {table.name} cannot be dropped",
            detail=f"It belongs to {role} of the table, by which its changes find their rows.",
            hint="create a new table without it and INSERT INTO it",
        )
    if len(known) == 1:
        raise RelationNameError(f"{name} is the only column of {table.name}", hint=f"write DROP TABLE {table.name}")
    _refuse_read(core, table, index, "dropped")
    fields = [field for i, field in enumerate(table.schema.fields) if i != index]
    ids = tuple(one for i, one in enumerate(table.ids) if i != index)
    return _Altered(_contract(table, fields), ids, dropped=True)


def _widen(core: Core, table: Table, statement: AlterColumnType) -> _Altered | None:
    index = _column_index(table, statement.column_name, statement)
    old = table.schema.fields[index]
    kind = column_type(core.sessions.catalyst, old.name, statement.type_text, statement.line, statement.column)
    if kind == old.dataType:
        return None
    if not is_wider(old.dataType, kind):
        wider = wider_types(old.dataType)
        another = "add a column of the new type, fill it by UPDATE ... SET it = CAST(...), and drop this one"
        raise StatementError(
            f"column {old.name} of {table.name} is {old.dataType.simpleString().upper()}, and "
            f"{kind.simpleString().upper()} does not hold all of its values",
            hint=f"it can be widened to {wider}; for any other type {another}" if wider else another,
            line=statement.line,
            column=statement.column,
        )
    fields = list(table.schema.fields)
    fields[index] = StructField(old.name, kind, old.nullable)
    return _Altered(_contract(table, fields), table.ids, widened=frozenset({table.ids[index]}))


def _drop_not_null(table: Table, statement: DropNotNull) -> _Altered | None:
    index = _column_index(table, statement.column_name, statement)
    old = table.schema.fields[index]
    if old.nullable:
        return None
    if old.name in table.contract.key:
        raise StatementError(
            f"column {old.name} of {table.name} belongs to its key, which is never NULL",
            hint="create a new table with another key and INSERT INTO it",
            line=statement.line,
            column=statement.column,
        )
    fields = list(table.schema.fields)
    fields[index] = StructField(old.name, old.dataType, True)
    # Who reads it may have counted on there being no NULL.
    return _Altered(_contract(table, fields), table.ids, widened=frozenset({table.ids[index]}))


def _contract(table: Table, fields: list[StructField]) -> TableContract:
    """The table's contract with other columns; where their number is the same, they may have other names."""
    old = table.contract
    renamed: dict[str, str] = {}
    if len(fields) == len(table.schema.fields):
        renamed = dict(zip(table.schema.names, [field.name for field in fields], strict=True))
    key = tuple(renamed.get(name, name) for name in old.key)
    sequence = None if old.sequence is None else renamed.get(old.sequence, old.sequence)
    return TableContract(old.name, StructType(fields), key, sequence)


def _column_index(table: Table, name: str, statement: AlterTable) -> int:
    names = [known.lower() for known in table.schema.names]
    if name not in names:
        raise StatementError(
            f"table {table.name} has no column {name}",
            hint=f"its columns are {', '.join(table.schema.names)}",
            line=statement.line,
            column=statement.column,
        )
    return names.index(name)


def _refuse_taken(table: Table, name: str, statement: AlterTable) -> None:
    if name.lower() in {known.lower() for known in table.schema.names}:
        raise StatementError(
            f"table {table.name} has a column {name} already",
            hint="choose another name; names do not differ by case",
            line=statement.line,
            column=statement.column,
        )


def readers(catalog: Catalog, table: str, column: int) -> list[str]:
    """The views that read a column, by its id, of a table as it is."""
    ids = catalog.table(table).ids
    if column not in ids:
        return []
    index = ids.index(column)
    return [view.name for view in catalog.users(table) if (table, index) in columns_read(view.resolved)]


def _refuse_read(core: Core, table: Table, index: int, what: str) -> None:
    """A column that views read, if only through a star, keeps its name and stays."""
    users = readers(core.catalog, table.name, table.ids[index])
    if users:
        raise RelationNameError(
            f"column {table.schema.names[index]} of {table.name} cannot be {what}",
            detail=f"It is read by {', '.join(users)}.",
            hint=f"drop {'those views' if len(users) > 1 else 'that view'} first, or replace "
            f"{'them' if len(users) > 1 else 'it'} by one that does not name the column",
        )


def _adopt(core: Core, old: Table, altered: _Altered) -> None:
    """Make the new columns durable and visible, with the views that follow from them."""
    table = make_table(altered.contract, altered.ids, system=old.system)
    _carry_rows(old, table)
    before, epoch = core.catalog, core.epoch
    catalog = before.having(table)
    made: list[View] = []
    follows: list[View] = []
    register(core.sessions.catalyst, table.name, table.schema)
    try:
        if altered.dropped or altered.widened:
            moved = [index for index, one in enumerate(old.ids) if one in altered.widened]
            catalog = _remake_views(core, catalog, table, moved, made, follows)
        logs = decide_logs(made, before.relations)
        work = Work({store.name: store for store in (core.clock, *catalog.stores())}, core.settings.small_bound)
        if altered.dropped:
            logs.cut_content[table.name] = old.store.snapshot().all()
        _carry_remembered(old, table, work, logs)
        fill_views(core, catalog, work, made)
        for name, content in logs.cut_content.items():
            work.record(cut_content_name(name), content)
        head: dict[str, Any] = {
            "define": [table_definition(table), *(view_definition(view) for view in made)],
            "reset": logs.resets,
            "closed": list(logs.cut_content),
        }
        core.commit(work, core.tick(), head, catalog)
    finally:
        leave_names(core, [table, *made, *follows], before, adopted=core.epoch > epoch)


def _carry_rows(old: Table, table: Table) -> None:
    """The rows that the table holds, under its new columns; part by part, so that large tables stay out of the heap."""
    written, wanted = _columns(old), _columns(table)
    if written.alike(wanted):
        table.store = old.store
        return
    for part in old.store.snapshot().parts():
        table.store.apply(converted(part.rows, part.weights, written, wanted))


def _columns(table: Table) -> Columns:
    return Columns(0, 0, table.schema, table.ids)


def _carry_remembered(old: Table, table: Table, work: Work, logs: LogDecisions) -> None:
    """What is known of keys is known on; where a key or a sequence became wider, its store starts anew."""
    table.tombstones = _carried(old.tombstones, table.tombstones, work, logs)
    table.positions = _carried(old.positions, table.positions, work, logs)


def _carried(old: Store | None, new: Store | None, work: Work, logs: LogDecisions) -> Store | None:
    if old is None or new is None:
        return new
    if old.schema.equals(new.schema):
        return old
    held = old.snapshot().all()
    columns = [column.cast(field.type) for column, field in zip(held.rows.columns, new.schema, strict=True)]
    logs.resets.append(new.name)
    work.record(new.name, consolidate(pa.table(columns, schema=new.schema), np.asarray(held.weights)))
    return new


def _remake_views(
    core: Core, catalog: Catalog, table: Table, widened: Collection[int], filled: list[View], kept: list[View]
) -> Catalog:
    """The catalog with the views over a table made again, each after what it reads: those that must be filled anew,
    and those that hold what they held."""
    for view in core.catalog.dependents(table.name):
        follows = any(one.name in view.resolved.reads for one in filled)
        if not follows and table.name not in view.resolved.reads:
            continue
        remade = remake(core, catalog, view, table.name)
        reads = any((table.name, index) in columns_read(view.resolved) for index in widened)
        if follows or reads or not _same_stores(view, remade):
            filled.append(remade)
            register(core.sessions.catalyst, view.name, remade.schema)
        else:
            kept.append(remade)
            remade.store, remade.hidden = view.store, view.hidden
        catalog = catalog.having(remade)
    return catalog


def _same_stores(view: View, remade: View) -> bool:
    """Whether what a view and its rule remember is just what the same view made again would remember."""
    return view.schema.names == remade.schema.names and _schemas(view) == _schemas(remade)


def _schemas(view: View) -> dict[str, pa.Schema]:
    stores: list[Store] = [view.store, *view.hidden.values()]
    return {store.name: store.schema for store in stores}
