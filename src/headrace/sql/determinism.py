"""What a view may not use, because the same rows would give now one answer, now another."""

from __future__ import annotations

from headrace.errors import ViewError
from headrace.plans.trees import Java, children, expressions_of, kind_of, walk

_SURROUNDINGS = frozenset({"CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentPath", "CurrentTimeZone"})
# They have one answer once ties are broken.
_ORDER_SENSITIVE = frozenset(
    {"First", "Last", "AnyValue", "CollectList", "CollectSet", "ArrayAgg", "FirstValue", "LastValue", "Mode"}
)
# Aggregates that sum rows up in the order in which they come, and cannot be told any; by how their names begin.
_SKETCHES = {
    "histogram_numeric": "count rows by bucket: GROUP BY width_bucket(x, 0, 100, 10)",
    "approx_top_k": "count by value: GROUP BY x ORDER BY COUNT(*) DESC LIMIT 5",
    "hll_": "use approx_count_distinct(x), or COUNT(DISTINCT x), which is exact",
    "kll_": "use percentile(x, 0.5), which is exact",
    "tuple_": "use theta_sketch_agg(x) for the keys and SUM(...) for what belongs to them",
}


def refuse_many_answers(name: str, plan: Java) -> None:
    """Refuse a view whose query has no answer of its own."""
    if kind_of(plan) == "Sample":
        raise ViewError(
            f"view {name} uses TABLESAMPLE, which picks other rows each time",
            hint="pick rows by their values: WHERE pmod(hash(id), 10) = 0 keeps a tenth of them for good",
        )
    for expression in expressions_of(plan):
        for part in walk(expression):
            if kind_of(part) in _SURROUNDINGS:
                raise ViewError(
                    f"view {name} uses {part.prettyName()}(), which depends on who asks and where",
                    hint="write the value itself, or store it in a column",
                )
            if kind_of(part) == "AggregateExpression":
                _refuse_sketches(name, children(part)[0].prettyName())
        if not expression.deterministic():
            _refuse_chance(name, expression)
    for child in children(plan):
        refuse_many_answers(name, child)


def _refuse_sketches(name: str, function: str) -> None:
    hint = next((hint for start, hint in _SKETCHES.items() if function.startswith(start)), None)
    if hint is not None:
        raise ViewError(
            f"view {name} uses {function}(), whose result depends on the order in which rows come",
            detail="A maintained view must equal its query at every epoch, and Spark itself would give other results "
            "for the same rows in another order.",
            hint=hint,
        )


def _refuse_chance(name: str, expression: Java) -> None:
    for part in walk(expression):
        own = all(child.deterministic() for child in children(part)) and not part.deterministic()
        if own and kind_of(part) not in _ORDER_SENSITIVE:
            function = part.prettyName()
            raise ViewError(
                f"view {name} uses {function}(), which gives another result each time",
                detail="A maintained view must equal its query at every epoch, so its functions must be deterministic.",
                hint=f"compute {function}() before the change is applied and store it in a column; "
                "now() and current_date are allowed and follow the epoch's clock",
            )
