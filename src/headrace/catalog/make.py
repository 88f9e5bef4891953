"""Making relations: from a definition to a table's store or a view's rule."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from headrace.catalog.catalog import Catalog, Table, View, ViewDefinition
from headrace.errors import RelationNameError, StatementError, ViewError
from headrace.intake.table import TableContract
from headrace.ir.nodes import Aggregate, FilterProject, Node, Scan
from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import FAILURES
from headrace.plans.trees import columns_of, data_type, id_of, items, kind_of
from headrace.rules.base import Rule, RuleContext
from headrace.rules.build import build_rule
from headrace.sql.allowed import analyze
from headrace.sql.lower import Lowering, NoRule, lower
from headrace.sql.query_errors import query_error
from headrace.sql.resolve import Resolved, refusal, register, resolve
from headrace.sql.syntax import ColumnDefinition, CreateTable
from headrace.state.arrow_types import arrow_schema
from headrace.state.store import Store


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
    if isinstance(kind, (YearMonthIntervalType, CalendarIntervalType, VariantType)):
        raise ViewError(
            f"{what} has the type {kind.simpleString()}, which Headrace does not carry",
            hint="cast it: an interval to days or months as INT, a VARIANT to STRING",
        )
    if isinstance(kind, StringType) and kind.simpleString() != "string":
        raise ViewError(
            f"{what} has the type {kind.simpleString()}, which Headrace does not carry",
            hint="compare lower(...) or another plain form instead",
        )
    if isinstance(kind, ArrayType):
        refuse_type(what, kind.elementType)
    elif isinstance(kind, MapType):
        refuse_type(what, kind.keyType)
        refuse_type(what, kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            refuse_type(what, field.dataType)


def make_table(contract: TableContract, ids: Sequence[int] | None = None) -> Table:
    """An empty table, not yet known to the analyzer; without ids given, those of its columns are their indexes."""
    store = Store(contract.name, arrow_schema(f.dataType for f in contract.schema.fields))
    tombstones = None
    if contract.sequence is not None:
        kinds = [contract.schema[name].dataType for name in (*contract.key, contract.sequence)]
        tombstones = Store(f"{contract.name}#tombstones", arrow_schema([*kinds, TimestampType()]))
    known = tuple(range(len(contract.schema.fields)) if ids is None else ids)
    return Table(contract.name, contract, store, tombstones, known)


def make_view(catalyst: Catalyst, catalog: Catalog, scratch: Path, definition: ViewDefinition) -> View:
    """A view with its rule, not yet filled and not yet known to the analyzer."""
    with _seen_as(catalyst, catalog, definition):
        resolved = resolve(
            catalyst, definition.name, definition.sql, definition.line, definition.column, definition.columns
        )
    _refuse_cycle(catalog, definition.name, resolved)
    schema = _named_schema(definition, resolved.schema)
    for field in schema.fields:
        refuse_type(f"column {field.name} of view {definition.name}", field.dataType)
    context = RuleContext(catalyst, scratch, definition.name)
    try:
        rule, reasons, key = _made_rule(catalog, definition, resolved, schema, context)
    except BaseException:
        context.clear()
        raise
    store = Store(definition.name, arrow_schema(f.dataType for f in schema.fields))
    hidden = {one.name: Store(one.name, one.schema) for one in context.stores}
    return View(definition, resolved, schema, store, context, rule, hidden, tuple(reasons), key)


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


def _made_rule(
    catalog: Catalog, definition: ViewDefinition, resolved: Resolved, schema: StructType, context: RuleContext
) -> tuple[Rule | None, list[str], tuple[str, ...]]:
    """The rule that follows a view, the reasons for what is not incremental, and the key of its rows."""
    catalyst = context.catalyst
    rule: Rule | None = None
    reasons: list[str] = []
    key: tuple[str, ...] = ()
    if definition.policy == "full":
        reasons.append("REFRESH POLICY FULL: recomputed in full, with a diff")
    else:
        try:
            if "collate" in definition.sql.lower():
                raise NoRule("rules compare strings by their bytes, and the query names a collation")
            if resolved.unfollowed is not None:
                raise NoRule(f"no rule follows {resolved.unfollowed}")
            node = lower(Lowering(catalyst), resolved.plan)
            rule = build_rule(context, node)
            _refuse_stores(context)
            reasons.extend(context.reasons)
            key = _derived_key(catalog, node, schema)
        except NoRule as missing:
            reasons.append(f"{missing}: recomputed in full, with a diff")
            rule = None
            context.forget()
    if definition.policy == "incremental" and reasons:
        raise ViewError(
            f"view {definition.name} cannot be maintained incrementally",
            detail="; ".join(reasons),
            hint="rewrite what is named, or choose REFRESH POLICY AUTO",
        )
    return rule, reasons, key


def _refuse_stores(context: RuleContext) -> None:
    """No rule without its state: each of its stores must have a plan that can fill it."""
    for hidden in context.stores:
        refused = refusal(context.catalyst, hidden.plan)
        if refused is not None:
            raise NoRule(f"its state would be filled by {refused}")


@contextmanager
def _seen_as(catalyst: Catalyst, catalog: Catalog, definition: ViewDefinition) -> Generator[None]:
    """While a view is read, its tables have the columns, under the names, that they had when it was written."""
    seen = catalog.seen(definition)
    with catalyst.view_names_lock:
        try:
            for name, columns in seen.items():
                register(catalyst, name, catalog.table(name).schema, columns)
            yield
        finally:
            for name in seen:
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


def _derived_key(catalog: Catalog, node: Node, schema: StructType) -> tuple[str, ...]:
    """Columns that identify a view's rows, where its shape tells: the groups of a GROUP BY, or a table's key."""
    steps: Sequence[object] = ()
    base = node
    if isinstance(node, FilterProject):
        base, steps = node.child, node.steps
        if not all(kind_of(step) in ("Project", "Filter") for step in node.steps):
            return ()
    if isinstance(base, Aggregate):
        ids = [group.id for group in base.groups]
        renamed = _aliases(items(base.plan.aggregateExpressions()))
        ids = [renamed.get(i, i) for i in ids]
    elif isinstance(base, Scan):
        relation = catalog.get(base.relation) if base.relation in catalog else None
        names = relation.contract.key if isinstance(relation, Table) else relation.key if relation else ()
        ids_by_index = {index: a.id for index, a in zip(base.columns, base.output, strict=True)}
        wanted = [relation.schema.names.index(name) for name in names] if relation else []
        if not wanted or any(index not in ids_by_index for index in wanted):
            return ()
        ids = [ids_by_index[index] for index in wanted]
    else:
        return ()
    for step in steps:
        if kind_of(step) == "Project":
            renamed = _aliases(items(step.projectList()))  # pyright: ignore[reportAttributeAccessIssue]
            ids = [renamed.get(i, i) for i in ids]
    columns = {a.id: name for a, name in zip(node.output, schema.names, strict=True)}
    return tuple(columns[i] for i in ids) if ids and all(i in columns for i in ids) else ()


def _aliases(columns: Sequence[object]) -> dict[int, int]:
    found: dict[int, int] = {}
    for column in columns:
        if kind_of(column) == "Alias" and kind_of(column.child()) == "AttributeReference":  # pyright: ignore
            found[id_of(column.child())] = id_of(column)  # pyright: ignore
    return found
