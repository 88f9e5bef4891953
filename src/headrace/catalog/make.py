"""Making relations: from a definition to a table's store or a view's rule."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import (
    CalendarIntervalType,
    CharType,
    DataType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from headrace.catalog.catalog import Catalog, Table, View, ViewDefinition
from headrace.catalog.derived_key import derived_key
from headrace.errors import RelationNameError, StatementError, ViewError
from headrace.intake.positions import POSITION_TYPES
from headrace.intake.table import TableContract
from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import FAILURES
from headrace.plans.trees import columns_of, data_type
from headrace.rules.all import RULES
from headrace.rules.base import Rule
from headrace.rules.context import NoRule, RuleContext
from headrace.sql.allowed import analyze
from headrace.sql.query_errors import query_error
from headrace.sql.resolve import Resolved, refusal, register, resolve
from headrace.sql.syntax import ColumnDefinition, CreateTable
from headrace.state.arrow_types import arrow_schema
from headrace.state.store import Store
from headrace.types import not_carried


def table_contract(catalyst: Catalyst, statement: CreateTable) -> TableContract:
    """The contract of a CREATE TABLE; Spark reads the types."""
    fields = [column_field(catalyst, column) for column in statement.columns_ddl]
    return TableContract(statement.name, StructType(fields), statement.primary_key, statement.sequence_by)


def column_field(catalyst: Catalyst, column: ColumnDefinition) -> StructField:
    """A column as it was declared."""
    kind = column_type(catalyst, column.spelled, column.type_text, column.line, column.column)
    return StructField(column.spelled, kind, not column.not_null)


def column_type(catalyst: Catalyst, name: str, text: str, line: int, column: int) -> DataType:
    """The type of a column; one that Spark does not know or that no store carries is refused."""
    try:
        kind = data_type(catalyst.jsession.sessionState().sqlParser().parseDataType(text))
    except FAILURES as error:
        refused = query_error(error)
        if refused.transient:
            raise refused from None
        raise StatementError(
            f"unknown type {text} of column {name}",
            detail=refused.detail,
            hint="use a Spark SQL type, such as BIGINT, STRING, DECIMAL(12,2), TIMESTAMP or ARRAY<INT>",
            line=line,
            column=column,
        ) from None
    refuse_type(f"column {name}", kind)
    return kind


def refuse_type(what: str, kind: DataType) -> None:
    """Types that no store can carry are refused by name."""
    refused = not_carried(kind)
    if refused is None or isinstance(refused, (CharType, VarcharType)):
        # Those bound what is written: a table's contract says so.
        return
    if isinstance(refused, StringType):
        hint = "compare lower(...) or another plain form instead"
    elif isinstance(refused, (YearMonthIntervalType, CalendarIntervalType, VariantType)):
        hint = "cast it: an interval to days or months as INT, a VARIANT to STRING"
    else:
        hint = "cast it to another type, such as STRING"
    raise ViewError(f"{what} has the type {refused.simpleString()}, which Headrace does not carry", hint=hint)


def make_table(
    contract: TableContract,
    ids: Sequence[int] | None = None,
    *,
    system: bool = False,
    events: Mapping[str, Any] | None = None,
    kept_for: str = "",
) -> Table:
    """An empty table, not yet known to the analyzer; without ids given, those of its columns are their indexes."""
    store = Store(contract.name, arrow_schema(f.dataType for f in contract.schema.fields))
    tombstones = None
    if contract.sequence is not None:
        kinds = [contract.schema[name].dataType for name in (*contract.key, contract.sequence)]
        tombstones = Store(f"{contract.name}#tombstones", arrow_schema([*kinds, TimestampType()]))
    positions = None
    if contract.key and not system:
        keys = [contract.schema[name].dataType for name in contract.key]
        positions = Store(f"{contract.name}#positions", arrow_schema([*keys, *POSITION_TYPES]))
    known = tuple(range(len(contract.schema.fields)) if ids is None else ids)
    return Table(contract.name, contract, store, tombstones, known, system, positions, events, kept_for)


def make_view(catalyst: Catalyst, catalog: Catalog, scratch: Path, definition: ViewDefinition) -> View:
    """A view with its rule, not yet filled and not yet known to the analyzer."""
    with _as_known(catalyst, catalog, definition):
        resolved = resolve(
            catalyst, definition.name, definition.sql, definition.line, definition.column, definition.columns
        )
    _refuse_cycle(catalog, definition.name, resolved)
    schema = _named_schema(definition, resolved.schema)
    for field in schema.fields:
        refuse_type(f"column {field.name} of view {definition.name}", field.dataType)
    growing = frozenset(table.name for table in catalog.tables() if table.events is not None)
    context = RuleContext(catalyst, scratch, definition.name, RULES, growing)
    try:
        followed = _follow(catalog, definition, resolved, schema, context)
    except BaseException:
        context.clear()
        raise
    store = Store(definition.name, arrow_schema(f.dataType for f in schema.fields))
    hidden = {one.name: Store(one.name, one.schema) for one in context.stores}
    return View(
        definition,
        resolved,
        schema,
        store,
        context,
        followed.rule,
        hidden,
        followed.reasons,
        followed.key,
        followed.operators,
    )


def columns_today(catalyst: Catalyst, definition: ViewDefinition) -> list[tuple[str, DataType]]:
    """The columns that a view's text gives with the relations as they are now."""
    with catalyst.view_names_lock:
        analyzed = analyze(catalyst, definition.sql, definition.line, definition.column)
        found = [(one.name(), data_type(one.dataType())) for one in columns_of(analyzed)]
    return _typed_columns(_named_schema(definition, StructType([StructField(*one) for one in found])))


def columns_held(view: View) -> list[tuple[str, DataType]]:
    """The columns that a view has."""
    return _typed_columns(view.schema)


def _typed_columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema.fields]


@dataclass(frozen=True, eq=False)
class _Followed:
    """How a view is followed: its rule, what is not incremental, the key of its rows, and what EXPLAIN says."""

    rule: Rule | None
    reasons: tuple[str, ...]
    key: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


def _follow(
    catalog: Catalog, definition: ViewDefinition, resolved: Resolved, schema: StructType, context: RuleContext
) -> _Followed:
    """A rule for a view, or the reason why there is none; a policy may insist on either."""
    if definition.policy == "full":
        return _Followed(None, ("REFRESH POLICY FULL: recomputed in full, with a diff",))
    try:
        if "collate" in definition.sql.lower():
            raise NoRule("rules compare strings by their bytes, and the query names a collation")
        if resolved.no_rule_for is not None:
            raise NoRule(f"no rule follows {resolved.no_rule_for}")
        node = context.lower(resolved.plan)
        rule = context.build(node)
        _refuse_stores(context)
        key = derived_key(context, node, schema.names, lambda name: _key_positions(catalog, name))
        followed = _Followed(rule, tuple(context.reasons), key, tuple(context.sentences(node)))
    except NoRule as missing:
        context.forget()
        followed = _Followed(None, (f"{missing}: recomputed in full, with a diff",))
    if definition.policy == "incremental" and followed.reasons:
        raise ViewError(
            f"view {definition.name} cannot be maintained incrementally",
            detail="; ".join(followed.reasons),
            hint="rewrite what is named, or choose REFRESH POLICY AUTO",
        )
    return followed


def _key_positions(catalog: Catalog, name: str) -> list[int]:
    """Where the columns of a relation's key are; a relation that nobody has made, such as the clock, has none."""
    if name not in catalog:
        return []
    relation = catalog.get(name)
    key = relation.contract.key if isinstance(relation, Table) else relation.key
    return [relation.schema.names.index(column) for column in key]


def _refuse_stores(context: RuleContext) -> None:
    """No rule without its state: each of its stores must have a plan that can fill it."""
    for hidden in context.stores:
        refused = refusal(context.catalyst, hidden.plan)
        if refused is not None:
            raise NoRule(f"its state would be filled by {refused}")


@contextmanager
def _as_known(catalyst: Catalyst, catalog: Catalog, definition: ViewDefinition) -> Generator[None]:
    """While a view is read, its tables have the columns, under the names, that they had when it was written."""
    known_columns = catalog.known_columns(definition)
    with catalyst.view_names_lock:
        try:
            for name, columns in known_columns.items():
                register(catalyst, name, catalog.table(name).schema, columns)
            yield
        finally:
            for name in known_columns:
                register(catalyst, name, catalog.table(name).schema)


def _refuse_cycle(catalog: Catalog, name: str, resolved: Resolved) -> None:
    if name not in catalog:
        return
    reached = {name, *(view.name for view in catalog.dependents(name))}
    through = sorted(reached.intersection(resolved.reads))
    if through:
        raise RelationNameError(
            f"view {name} would read itself",
            detail=f"Its query reads {', '.join(through)}, which {'is' if through == [name] else 'reads'} {name}.",
            hint="views may read tables and other views, but not in a circle",
        )


def _named_schema(definition: ViewDefinition, schema: StructType) -> StructType:
    if not definition.columns:
        return schema
    if len(definition.columns) != len(schema.fields):
        raise ViewError(
            f"view {definition.name} names {len(definition.columns)} columns, but its query gives {len(schema.fields)}",
            hint="name every column of the query, or none",
        )
    return StructType(
        [StructField(name, f.dataType, f.nullable) for name, f in zip(definition.columns, schema.fields, strict=True)]
    )
