"""From a view's SQL to a resolved, decorrelated plan of few operators, by Spark's own analyzer and rules.

The plan's leaves carry marks that say which relation and column they are. What is left of subqueries are joins; what
is left of the clock is a join with the one-row relation that holds the epoch's time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.errors import HeadraceError, QueryError, RelationNameError, StatementError, ViewError
from headrace.plans.catalyst import (
    COLUMN_MARK,
    RELATION_MARK,
    Catalyst,
    Java,
    analyzed_plan,
    children,
    data_type,
    items,
    kind_of,
    optional,
    rewrite,
    walk,
)
from headrace.sql.ties import break_ties

CLOCK = "_headrace_clock"
CLOCK_SCHEMA = StructType([StructField("now", TimestampType(), False)])

_CLOCK_FUNCTIONS = frozenset({"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime"})
_SURROUNDINGS = frozenset({"CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentPath", "CurrentTimeZone"})
_ORDER_SENSITIVE = frozenset(
    {"First", "Last", "AnyValue", "CollectList", "CollectSet", "ArrayAgg", "FirstValue", "LastValue", "Mode"}
)
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
_SUBQUERY_EXPRESSIONS = frozenset(
    {"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery", "DynamicPruningSubquery"}
)


# The columns of a relation that a view's text knows: place and name of each.
Seen = tuple[tuple[int, str], ...]


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
    unfollowed: str | None


def register(catalyst: Catalyst, name: str, schema: StructType, seen: Seen | None = None) -> None:
    """Make a relation known to the analyzer, with the marks that lead back to it: all of its columns, or those seen."""
    marked = StructType(
        [
            StructField(
                label,
                schema.fields[place].dataType,
                schema.fields[place].nullable,
                {RELATION_MARK: name, COLUMN_MARK: place},
            )
            for place, label in (seen if seen is not None else enumerate(schema.names))
        ]
    )
    catalyst.session.createDataFrame([], marked).createOrReplaceTempView(name)


def forget(catalyst: Catalyst, name: str) -> None:
    """Make a relation unknown to the analyzer."""
    catalyst.session.catalog.dropTempView(name)


def relation_of(plan: Java) -> str | None:
    """The relation that a leaf stands for, if it is one of ours."""
    for column in items(plan.output()):
        metadata = column.metadata()
        if metadata.contains(RELATION_MARK):
            return metadata.getString(RELATION_MARK)
    return None


def analyze(catalyst: Catalyst, sql: str, line: int = 1, column: int = 1) -> Java:
    """The analyzed plan of a query; errors come with line, column and a hint."""
    try:
        return catalyst.analyze(catalyst.parse_query(sql))
    except (Py4JJavaError, PySparkException) as error:
        raise query_error(error, line, column) from None


def resolve(catalyst: Catalyst, name: str, sql: str, line: int = 1, column: int = 1) -> Resolved:
    """The query of a view, ready to be lowered."""
    analyzed = analyze(catalyst, sql, line, column)
    _check_output(name, analyzed)
    schema = StructType(
        [StructField(c.name(), data_type(c.dataType()), c.nullable()) for c in items(analyzed.output())]
    )
    plan, uses_clock = normalize(catalyst, analyzed)
    _refuse_nondeterminism(name, plan)
    plan, ties = break_ties(catalyst, plan)
    if ties:
        plan = _shape(catalyst, plan)
    reads = sorted(set(_leaves(plan)) - {CLOCK})
    unfollowed = _unfollowed(plan)
    if unfollowed is not None and uses_clock:
        raise ViewError(
            f"view {name} has {unfollowed} beside the clock, which cannot be recomputed at the epoch's time",
            hint="write the subquery as a join, or compute the time before the change is applied",
        )
    if unfollowed is not None:
        reads = sorted(set(reads) | set(_leaves_of_subqueries(analyzed)))
    return Resolved(sql, analyzed, plan, schema, tuple(reads), tuple(ties), uses_clock, unfollowed)


def normalize(catalyst: Catalyst, plan: Java) -> tuple[Java, bool]:
    """The plan without aliases, views, CTEs, set operators and subqueries; and whether it reads the clock."""
    plan = catalyst.java_class("org.apache.spark.sql.catalyst.optimizer.InlineCTE")(True, False).apply(plan)
    for name in (*_FINISH, *_OPERATORS):
        plan = catalyst.rule(name)(plan)
    plan = _pull_up_nested(catalyst, _with_rows_apart(catalyst, plan))
    for name in (*_SUBQUERIES, *_SUBQUERIES, *_FINISH):
        plan = catalyst.rule(name)(plan)
    plan, uses_clock = _join_scalars(catalyst, plan)
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


def _pull_up_nested(catalyst: Catalyst, plan: Java) -> Java:
    """Correlated predicates of subqueries inside subqueries, pulled up from the innermost on."""

    def replace(part: Java) -> Java | None:
        if kind_of(part) not in ("Exists", "ListQuery", "ScalarSubquery"):
            return None
        inner = _pull_up_nested(catalyst, part.plan())
        return part.withNewPlan(catalyst.rule("PullupCorrelatedPredicates")(inner))

    below = [_pull_up_nested(catalyst, child) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    if kind_of(plan) == "Filter":
        return catalyst.filter(rewrite(catalyst, plan.condition(), replace), plan.child())
    if kind_of(plan) == "Project":
        return catalyst.project([rewrite(catalyst, c, replace) for c in items(plan.projectList())], plan.child())
    return plan


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


def _unfollowed(plan: Java) -> str | None:
    """A subquery that is still an expression, which no rule would see change."""
    for expression in _expressions(plan):
        for part in walk(expression):
            if kind_of(part) in _SUBQUERY_EXPRESSIONS or kind_of(part) == "OuterReference":
                return f"a subquery inside {kind_of(plan).lower()}"
    return next((found for child in children(plan) if (found := _unfollowed(child))), None)


def _leaves_of_subqueries(plan: Java) -> list[str]:
    found = _leaves(plan)
    for expression in _expressions(plan):
        for part in walk(expression):
            if kind_of(part) in _SUBQUERY_EXPRESSIONS:
                found.extend(_leaves_of_subqueries(part.plan()))
    for child in children(plan):
        found.extend(_leaves_of_subqueries(child))
    return found


def columns_read(resolved: Resolved) -> set[tuple[str, int]]:
    """The columns, as relation and place, that a view's text names, if only through a star, or that settle its ties."""
    found: set[tuple[str, int]] = set()
    for plan in (resolved.analyzed, resolved.plan):
        _collect_read(plan, found)
        _mark_all(items(plan.output()), found)
    return found


def _collect_read(plan: Java, found: set[tuple[str, int]]) -> None:
    below = children(plan)
    for expression in _expressions(plan) if below else ():
        for part in walk(expression):
            if kind_of(part) == "AttributeReference":
                _mark_all([part], found)
            elif kind_of(part) == "OuterReference":
                _mark_all([part.e()], found)
            elif kind_of(part) in _SUBQUERY_EXPRESSIONS:
                _collect_read(part.plan(), found)
                _mark_all(items(part.plan().output()), found)
    for child in below:
        _collect_read(child, found)
        # An operator such as UNION reads every column without an expression that says so.
        if kind_of(plan) not in _PASSES_ON:
            _mark_all(items(child.output()), found)


def _mark_all(columns: Sequence[Java], found: set[tuple[str, int]]) -> None:
    for column in columns:
        metadata = column.metadata()
        if metadata.contains(RELATION_MARK):
            found.add((metadata.getString(RELATION_MARK), int(metadata.getLong(COLUMN_MARK))))


def _check_output(name: str, plan: Java) -> None:
    seen: set[str] = set()
    for column in items(plan.output()):
        lowered = column.name().lower()
        if lowered in seen:
            raise ViewError(
                f"view {name} has two columns named {column.name()}",
                detail="Every column of a relation needs a name of its own.",
                hint=f"rename one of them: ... AS {column.name()}_2",
            )
        seen.add(lowered)


def _refuse_nondeterminism(name: str, plan: Java) -> None:
    if kind_of(plan) == "Sample":
        raise ViewError(
            f"view {name} uses TABLESAMPLE, which picks other rows each time",
            hint="pick rows by their values: WHERE pmod(hash(id), 10) = 0 keeps a tenth of them for good",
        )
    for expression in _expressions(plan):
        for part in walk(expression):
            if kind_of(part) in _SURROUNDINGS:
                raise ViewError(
                    f"view {name} uses {part.prettyName()}(), which depends on who asks and where",
                    hint="write the value itself, or store it in a column",
                )
        if expression.deterministic():
            continue
        for part in walk(expression):
            own = all(child.deterministic() for child in children(part)) and not part.deterministic()
            if own and kind_of(part) not in _ORDER_SENSITIVE:
                function = part.prettyName()
                raise ViewError(
                    f"view {name} uses {function}(), which gives another result each time",
                    detail="A maintained view must equal its query at every epoch, so its functions must be "
                    "deterministic.",
                    hint=f"compute {function}() before the change is applied and store it in a column; "
                    "now() and current_date are allowed and follow the epoch's clock",
                )
    for child in children(plan):
        _refuse_nondeterminism(name, child)


def _expressions(plan: Java) -> list[Java]:
    return items(plan.expressions())


def _join_scalars(catalyst: Catalyst, plan: Java) -> tuple[Java, bool]:
    """Scalar subqueries and the clock become joins with one-row plans."""
    if kind_of(plan) == "Aggregate" and _results_need_one_row(plan):
        plan = _results_above(catalyst, plan)
    uses_clock = False
    below: list[Java] = []
    for child in children(plan):
        child, used = _join_scalars(catalyst, child)
        uses_clock = uses_clock or used
        below.append(child)
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    scalars: list[tuple[Java, Java]] = []
    clock: list[Java] = []
    clocks: list[bool] = []

    def replace(part: Java) -> Java | None:
        kind = kind_of(part)
        if kind == "ScalarSubquery" or (kind == "Exists" and part.outerAttrs().isEmpty()):
            for known, attribute in scalars:
                if known.semanticEquals(part):
                    return attribute
            single = _one_row if kind == "ScalarSubquery" else _any_row
            one_row, used = normalize(catalyst, single(catalyst, part.plan()))
            clocks.append(used)
            joined.append(one_row)
            attribute = items(one_row.output())[0]
            scalars.append((part, attribute))
            return attribute
        if kind in _CLOCK_FUNCTIONS:
            if not clock:
                leaf, _ = normalize(catalyst, analyzed_plan(catalyst.session.table(CLOCK)))
                joined.append(leaf)
                clock.append(items(leaf.output())[0])
            wanted = part.dataType()
            return clock[0] if kind in ("CurrentTimestamp", "Now") else catalyst.cast(clock[0], wanted)
        return None

    joined: list[Java] = []
    rebuilt = _with_expressions(catalyst, plan, replace, joined)
    return rebuilt, uses_clock or bool(clock) or any(clocks)


def _results_need_one_row(plan: Java) -> bool:
    """Whether a scalar subquery, an uncorrelated EXISTS or the clock stands beside the aggregates, not in them."""
    groups = items(plan.groupingExpressions())

    def needs(part: Java) -> bool:
        kind = kind_of(part)
        if kind == "AggregateExpression" or any(group.semanticEquals(part) for group in groups):
            return False
        if kind in ("ScalarSubquery", *_CLOCK_FUNCTIONS) or (kind == "Exists" and part.outerAttrs().isEmpty()):
            return True
        return any(map(needs, children(part)))

    return any(map(needs, items(plan.aggregateExpressions())))


def _results_above(catalyst: Catalyst, plan: Java) -> Java:
    """An aggregation that gives its groups and aggregates alone, below the expressions made of them."""
    named: list[tuple[Java, Java]] = []
    for i, group in enumerate(items(plan.groupingExpressions())):
        bare = kind_of(group) == "AttributeReference"
        named.append((group, group if bare else catalyst.alias(group, f"_g{i}")))

    def replace(part: Java) -> Java | None:
        found = next((alias for known, alias in named if known.semanticEquals(part)), None)
        if found is None and kind_of(part) == "AggregateExpression":
            found = catalyst.alias(part, f"_a{len(named)}")
            named.append((part, found))
        return None if found is None else found.toAttribute()

    results = [rewrite(catalyst, column, replace) for column in items(plan.aggregateExpressions())]
    columns = catalyst.seq([alias for _, alias in named])
    below = catalyst.plan_class("Aggregate")(plan.groupingExpressions(), columns, plan.child(), catalyst.none)
    return catalyst.project(results, below)


def _with_expressions(
    catalyst: Catalyst, plan: Java, replace: Callable[[Java], Java | None], joined: list[Java]
) -> Java:
    """An operator with its expressions rewritten, over its child joined with the one-row plans they need."""
    kind = kind_of(plan)

    def changed(expressions: Java) -> list[Java]:
        return [rewrite(catalyst, one, replace) for one in items(expressions)]

    if kind == "Filter":
        condition = rewrite(catalyst, plan.condition(), replace)
        if not joined:
            return plan
        child = plan.child()
        return catalyst.project(items(child.output()), catalyst.filter(condition, _cross(catalyst, child, joined)))
    if kind == "Project":
        columns = changed(plan.projectList())
        if not joined:
            return plan
        return catalyst.project(columns, _cross(catalyst, plan.child(), joined))
    if kind == "Aggregate":
        groups, columns = changed(plan.groupingExpressions()), changed(plan.aggregateExpressions())
        if not joined:
            return plan
        below = _cross(catalyst, plan.child(), joined)
        return catalyst.plan_class("Aggregate")(catalyst.seq(groups), catalyst.seq(columns), below, catalyst.none)
    if kind == "Window":
        parts = [changed(part) for part in (plan.windowExpressions(), plan.partitionSpec(), plan.orderSpec())]
        if not joined:
            return plan
        below = _cross(catalyst, plan.child(), joined)
        window = catalyst.plan_class("Window")(*map(catalyst.seq, parts), below, catalyst.none)
        return catalyst.project(items(plan.output()), window)
    if kind == "Sort":
        order = changed(plan.order())
        if not joined:
            return plan
        below = _cross(catalyst, plan.child(), joined)
        ordered = catalyst.plan_class("Sort")(catalyst.seq(order), getattr(plan, "global")(), below, catalyst.none)
        return catalyst.project(items(plan.output()), ordered)
    if kind == "Generate":
        generator = rewrite(catalyst, plan.generator(), replace)
        if not joined:
            return plan
        parts = (plan.unrequiredChildIndex(), plan.outer(), plan.qualifier(), plan.generatorOutput())
        generate = catalyst.plan_class("Generate")(generator, *parts, _cross(catalyst, plan.child(), joined))
        return catalyst.project(items(plan.output()), generate)
    if kind == "Join" and plan.condition().isDefined():
        condition = rewrite(catalyst, plan.condition().get(), replace)
        if not joined:
            return plan
        # A one-row plan on either side leaves the rows of that side as they are, whichever are preserved.
        left = _cross(catalyst, plan.left(), joined)
        return catalyst.project(items(plan.output()), catalyst.join(left, plan.right(), plan.joinType(), condition))
    # A subquery that is left is recomputed as a whole; the clock cannot be.
    if any(kind_of(part) in _CLOCK_FUNCTIONS for expression in _expressions(plan) for part in walk(expression)):
        raise ViewError(
            f"the clock inside {kind.lower()} is not followed",
            hint="compute it as a column in a subquery below, and use that column",
        )
    return plan


def _cross(catalyst: Catalyst, child: Java, joined: Sequence[Java]) -> Java:
    for one_row in joined:
        child = catalyst.join(child, one_row, catalyst.inner(), None)
    return child


def _any_row(catalyst: Catalyst, plan: Java) -> Java:
    """Whether a plan gives any row, as a plan of exactly one row."""
    return analyzed_plan(catalyst.frame(plan).selectExpr("count(1) > 0 AS x"))


def _one_row(catalyst: Catalyst, plan: Java) -> Java:
    """The plan of a scalar subquery, made to give exactly one row; more than one is an error, as in Spark."""
    if kind_of(plan) == "Aggregate" and plan.groupingExpressions().isEmpty():
        return plan
    column = catalyst.frame(plan).toDF("x")
    single = column.selectExpr("max(x) AS x", "count(1) AS n").selectExpr(
        "CASE WHEN n > 1 THEN raise_error('more than one row returned by a scalar subquery') ELSE x END AS x"
    )
    return analyzed_plan(single)


_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_UNKNOWN = ("TABLE_OR_VIEW_NOT_FOUND",)


def query_error(error: Exception, line: int = 1, column: int = 1) -> HeadraceError:
    """Spark's complaint about a query as ours: short message, detail, hint, and the place in the script."""
    captured = convert_exception(error.java_exception) if isinstance(error, Py4JJavaError) else error
    text = str(captured)
    condition = captured.getCondition() if isinstance(captured, PySparkException) else None
    first = text.strip().splitlines()[0] if text.strip() else "Spark refused the query"
    first = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first)
    found = _PLACE.search(text) or re.search(r"line (\d+) pos (\d+)", text)
    place: tuple[int, int] | None = None
    if found:
        at_line, at_position = int(found.group(1)), int(found.group(2))
        place = (line + at_line - 1, (column if at_line == 1 else 1) + at_position)
    where = f"line {place[0]}, column {place[1]}: " if place else ""
    detail = f"{where}{first}"
    if condition == "PARSE_SYNTAX_ERROR" or (condition or "").startswith("PARSE"):
        return StatementError(
            "the query cannot be read",
            detail=detail,
            hint="check the spelling and the commas near that place; the query is Spark SQL",
            line=place[0] if place else line,
            column=place[1] if place else column,
        )
    if condition in _UNKNOWN:
        return RelationNameError(
            "unknown table or view", detail=detail, hint="SHOW TABLES and SHOW VIEWS list what there is"
        )
    if condition and condition.startswith("UNRESOLVED_COLUMN"):
        return QueryError(
            "unknown column",
            detail=detail,
            hint="DESCRIBE the relation to see its columns",
            line=place[0] if place else None,
            column=place[1] if place else None,
        )
    return QueryError(
        "Spark refused the query",
        detail=detail,
        hint="mend the query; it must be valid Spark SQL",
        line=place[0] if place else None,
        column=place[1] if place else None,
    )


__all__ = [
    "CLOCK",
    "CLOCK_SCHEMA",
    "Resolved",
    "Seen",
    "analyze",
    "columns_read",
    "forget",
    "normalize",
    "query_error",
    "register",
    "relation_of",
    "resolve",
    "optional",
]
