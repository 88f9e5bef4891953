"""From a view's SQL to a resolved, decorrelated plan of few operators, by Spark's own analyzer and rules.

The plan's leaves carry marks that say which relation and column they are. What is left of subqueries are joins; what
is left of the clock is a join with the one-row relation that holds the epoch's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructField, StructType

from headrace.errors import ViewError
from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import first_line, refuses_plan
from headrace.plans.trees import (
    COLUMN_MARK,
    RELATION_MARK,
    Java,
    children,
    columns_of,
    data_type,
    expressions_of,
    items,
    kind_of,
    mark_of,
    walk,
)
from headrace.sql.allowed import analyze
from headrace.sql.constants import fold_constants
from headrace.sql.determinism import refuse_many_answers
from headrace.sql.fixed_times import refuse_fixed_times
from headrace.sql.names import quoted
from headrace.sql.not_in import split_not_in
from headrace.sql.one_row import CLOCK, join_one_rows
from headrace.sql.subqueries import prepare_subqueries, with_equalities
from headrace.sql.ties import break_ties

_FINISH = (
    "EliminateSubqueryAliases",
    "EliminateView",
    "EliminateResolvedHint",
    "EvalInlineTables",
    "ReplaceExpressions",
)
_OPERATORS = (
    "RewriteExceptAll",
    "RewriteIntersectAll",
    "ReplaceIntersectWithSemiJoin",
    "ReplaceExceptWithAntiJoin",
    "ReplaceDistinctWithAggregate",
    "PullOutGroupingExpressions",
    "InsertMapSortInGroupingExpressions",
)
_SUBQUERIES = (
    "PullupCorrelatedPredicates",
    "RewriteCorrelatedScalarSubquery",
    "RewriteLateralSubquery",
    "RewritePredicateSubquery",
)
_SHAPE = (
    "BooleanSimplification",
    "RemoveLiteralFromGroupExpressions",
    "PushDownPredicates",
    "EliminateOuterJoin",
    "ColumnPruning",
    "RemoveRedundantAliases",
    "CollapseProject",
    "RemoveNoopOperators",
)
_ROUNDS = 4
_PASSES_ON = frozenset(
    {"Aggregate", "CTERelationDef", "Expand", "Filter", "Generate", "GlobalLimit", "Join", "LateralJoin", "LocalLimit"}
    | {"Offset", "Project", "Repartition", "RepartitionByExpression", "ResolvedHint", "Sample", "Sort"}
    | {"SubqueryAlias", "View", "Window", "WithCTE"}
)
# Those that hold a plan; what IN compares with is a ListQuery.
_SUBQUERY_EXPRESSIONS = frozenset(
    {"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery", "DynamicPruningSubquery"}
)


# The columns of a relation that a view's text knows: index and name of each.
KnownColumns = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Resolved:
    """A view's query: its analyzed plan, the plan its rules follow, its schema and what it reads."""

    sql: str
    analyzed: Java
    plan: Java
    schema: StructType
    reads: tuple[str, ...]
    ties: tuple[str, ...]
    uses_clock: bool
    no_rule_for: str | None


def register(catalyst: Catalyst, name: str, schema: StructType, known_columns: KnownColumns | None = None) -> None:
    """Make a relation known to the analyzer, with marks that lead back to it: by all columns, or by those known."""
    marked = StructType(
        [
            StructField(
                label,
                schema.fields[index].dataType,
                schema.fields[index].nullable,
                {RELATION_MARK: name, COLUMN_MARK: index},
            )
            for index, label in (known_columns if known_columns is not None else enumerate(schema.names))
        ]
    )
    catalyst.no_data(marked).createOrReplaceTempView(quoted(name))


def forget(catalyst: Catalyst, name: str) -> None:
    """Make a relation unknown to the analyzer."""
    catalyst.session.catalog.dropTempView(name)


def relation_of(plan: Java) -> str | None:
    """The relation that a leaf stands for, if it is one of ours."""
    if kind_of(plan) in ("UnionLoopRef", "LocalRelation"):
        # What a recursive query has found so far, named after what it began with; or what is empty, whatever it reads.
        return None
    return next((mark[0] for column in columns_of(plan) if (mark := mark_of(column))), None)


def resolve(
    catalyst: Catalyst, name: str, sql: str, line: int = 1, column: int = 1, renamed: Sequence[str] = ()
) -> Resolved:
    """The query of a view, ready to be lowered; the view may name its columns otherwise."""
    refuse_fixed_times(name, sql, line, column)
    analyzed = analyze(catalyst, sql, line, column)
    _check_names(name, renamed or [one.name() for one in columns_of(analyzed)])
    schema = StructType([StructField(c.name(), data_type(c.dataType()), c.nullable()) for c in columns_of(analyzed)])
    plan, uses_clock = normalize(catalyst, analyzed)
    refuse_many_answers(name, plan)
    plan, ties = break_ties(catalyst, plan)
    if ties:
        plan = _shape(catalyst, plan)
    # A CTE that nothing reads is not in the plan, but what it names must be there whenever the text is read again.
    reads = sorted((set(_leaves(plan)) | set(_leaves_of_subqueries(analyzed))) - {CLOCK})
    no_rule_for = _without_rule(plan) or refusal(catalyst, plan)
    if no_rule_for is not None and uses_clock:
        raise ViewError(
            f"view {name} has {no_rule_for} beside the clock, which cannot be recomputed at the epoch's time",
            hint="write the subquery as a join, or compute the time before the change is applied",
        )
    return Resolved(sql, analyzed, plan, schema, tuple(reads), tuple(ties), uses_clock, no_rule_for)


def refusal(catalyst: Catalyst, plan: Java) -> str | None:
    """What is to be said of a plan of our making that Spark's analysis refuses; None of any other."""
    try:
        catalyst.analyze(plan)
    except AnalysisException as error:
        if not refuses_plan(error):
            raise
        return f"a plan that Spark refuses ({first_line(error)})"
    return None


def normalize(catalyst: Catalyst, plan: Java) -> tuple[Java, bool]:
    """The plan without aliases, views, CTEs, set operators and subqueries; and whether it reads the clock."""
    plan = catalyst.java_class("org.apache.spark.sql.catalyst.optimizer.InlineCTE")(True, False).apply(plan)
    for name in (*_FINISH, *_OPERATORS):
        plan = catalyst.rule(name)(plan)
    plan = prepare_subqueries(catalyst, fold_constants(catalyst, _with_rows_apart(catalyst, plan)))
    for name in (*_SUBQUERIES, *_SUBQUERIES, *_FINISH):
        plan = catalyst.rule(name)(plan)
    plan = split_not_in(catalyst, with_equalities(catalyst, plan))
    plan, uses_clock = join_one_rows(catalyst, plan, normalize)
    return _shape(catalyst, plan), uses_clock


def _with_rows_apart(catalyst: Catalyst, plan: Java) -> Java:
    """Rows that a set operation repeats get columns of their own.

    Spark gives them the ids of the columns they are made of, and its optimizer may then put an expression in the place
    of both, where only a column may stand.
    """
    below = [_with_rows_apart(catalyst, child) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    if kind_of(plan) != "Generate" or kind_of(plan.generator()) != "ReplicateRows":
        return plan
    before = items(plan.generatorOutput())
    fresh = [column.newInstance() for column in before]
    parts = (plan.generator(), plan.unrequiredChildIndex(), plan.outer(), plan.qualifier())
    generate = catalyst.plan_class("Generate")(*parts, catalyst.seq(fresh), plan.child())
    named = [catalyst.alias(new, old.name(), old.exprId()) for new, old in zip(fresh, before, strict=True)]
    return catalyst.project(named, generate)


def _shape(catalyst: Catalyst, plan: Java) -> Java:
    for _ in range(_ROUNDS):
        before = plan
        for name in _SHAPE:
            plan = catalyst.rule(name)(plan)
        if plan.fastEquals(before):
            break
    return plan


def _leaves(plan: Java) -> list[str]:
    below = children(plan)
    if not below:
        name = relation_of(plan)
        return [name] if name else []
    return [name for child in below for name in _leaves(child)]


def _without_rule(plan: Java) -> str | None:
    """A subquery that is still an expression, which no rule would see change."""
    for expression in expressions_of(plan):
        for part in walk(expression):
            if kind_of(part) in _SUBQUERY_EXPRESSIONS or kind_of(part) == "OuterReference":
                return f"a subquery inside {kind_of(plan).lower()}"
    return next((found for child in children(plan) if (found := _without_rule(child))), None)


def _leaves_of_subqueries(plan: Java) -> list[str]:
    found = _leaves(plan)
    for expression in expressions_of(plan):
        for part in walk(expression):
            if kind_of(part) in _SUBQUERY_EXPRESSIONS:
                found.extend(_leaves_of_subqueries(part.plan()))
    for child in children(plan):
        found.extend(_leaves_of_subqueries(child))
    return found


def columns_read(resolved: Resolved) -> set[tuple[str, int]]:
    """The columns, as relation and index, that a view's text names, if only through a star, or that settle its ties."""
    found: set[tuple[str, int]] = set()
    for plan in (resolved.analyzed, resolved.plan):
        _collect_read(plan, found)
        _mark_all(columns_of(plan), found)
    return found


def _collect_read(plan: Java, found: set[tuple[str, int]]) -> None:
    below = children(plan)
    for expression in expressions_of(plan) if below else ():
        for part in walk(expression):
            if kind_of(part) == "AttributeReference":
                _mark_all([part], found)
            elif kind_of(part) == "OuterReference":
                _mark_all([part.e()], found)
            elif kind_of(part) in _SUBQUERY_EXPRESSIONS:
                _collect_read(part.plan(), found)
                _mark_all(columns_of(part.plan()), found)
    for child in below:
        _collect_read(child, found)
        # An operator such as UNION reads every column without an expression that says so.
        if kind_of(plan) not in _PASSES_ON:
            _mark_all(columns_of(child), found)


def _mark_all(columns: Sequence[Java], found: set[tuple[str, int]]) -> None:
    found.update(mark for column in columns if (mark := mark_of(column)))


def _check_names(name: str, columns: Sequence[str]) -> None:
    seen: set[str] = set()
    for column in columns:
        lowered = column.lower()
        if lowered in seen:
            raise ViewError(
                f"view {name} has two columns named {column}",
                detail="Every column of a relation needs a name of its own.",
                hint=f"rename one of them: ... AS {column}_2",
            )
        seen.add(lowered)
