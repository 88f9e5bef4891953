"""How much of a touched partition a window reads, found from the windows' functions, frames and orders alone."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import DataType, DateType, DoubleType, IntegerType, LongType, StringType

from headrace.rules.window_reach import FirstRows, FrameReach, OrderBy, WindowReach, find_reach, limited
from headrace.rules.window_running import Running
from tests.driven_rules import Listed, Reader

KEY, AT, VALUE, DAY, NAME = range(1, 6)
TYPES: dict[int, DataType] = {
    KEY: IntegerType(),
    AT: LongType(),
    VALUE: IntegerType(),
    DAY: DateType(),
    NAME: StringType(),
}
ASCENDING = OrderBy(AT, False, True, LongType())


class Tree:
    """A part of Spark's plan: its kind, and what it answers."""

    _gateway_client = Reader._gateway_client

    def __init__(self, kind: str, *children: Any, **answers: Any) -> None:
        self.__dict__.update(_headrace_kind=kind, _headrace_children=list(children), _answers=answers)

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__["_answers"]
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]

    def children(self) -> Any:
        return sequence(self.__dict__["_headrace_children"])


def sequence(members: list[Any]) -> Any:
    return Listed(*members)


def typed(kind: DataType) -> Any:
    return Tree("DataType", json=kind.json())


def column(number: int, kind: DataType | None = None) -> Any:
    kind = kind or TYPES.get(number, LongType())
    made = Tree("AttributeReference", dataType=typed(kind), exprId=Tree("ExprId", id=number))
    made.__dict__.update(_headrace_id=number, _headrace_attribute=f"{number}\ntrue\n{kind.json()}\nc{number}")
    return made


def literal(value: Any, kind: DataType | None = None) -> Any:
    kind = kind or IntegerType()
    return Tree("Literal", value=value, eval=value, foldable=True, dataType=typed(kind))


def ordered(by: Any, descending: bool = False) -> Any:
    """Spark's default: NULLs first, and last where the order descends."""
    direction, nulls = ("Descending", "NullsLast") if descending else ("Ascending", "NullsFirst")
    return Tree("SortOrder", child=by, direction=Tree(direction), nullOrdering=Tree(nulls))


def frame(kind: str, lower: Any, upper: Any) -> Any:
    return Tree("SpecifiedWindowFrame", frameType=Tree(kind), lower=lower, upper=upper)


CURRENT, START, END = Tree("CurrentRow"), Tree("UnboundedPreceding"), Tree("UnboundedFollowing")
SO_FAR = frame("RowFrame", START, CURRENT)


def windowed(function: Any, of: Any = SO_FAR, number: int = 50) -> Any:
    expression = Tree("WindowExpression", function, Tree("WindowSpecDefinition", frameSpecification=of))
    alias = Tree("Alias", child=expression)
    alias.__dict__["_headrace_id"] = number
    return alias


def aggregate(kind: str, *inputs: Any, filtered: bool = False) -> Any:
    function = Tree(kind, *inputs, prettyName=kind.lower())
    return Tree("AggregateExpression", aggregateFunction=function, filter=Tree("Option", isDefined=filtered))


def shifted(kind: str, rows: int, ignore_nulls: bool = False) -> Any:
    return Tree(kind, column(VALUE), offset=literal(rows), ignoreNulls=ignore_nulls)


def window(*aliases: Any, by: Any = None, partition: Any = None) -> Any:
    order = [ordered(column(AT))] if by is None else by
    keys = [column(KEY)] if partition is None else partition
    return Tree(
        "Window", windowExpressions=sequence(list(aliases)), orderSpec=sequence(order), partitionSpec=sequence(keys)
    )


def reach(*steps: Any, above: Any = (), keys: tuple[int, ...] = (KEY,)) -> WindowReach | None:
    found = find_reach(steps, keys, set(TYPES))
    return None if found is None else limited(found, above)


def frame_reaches(*aliases: Any, **parts: Any) -> tuple[FrameReach, ...] | None:
    found = reach(window(*aliases, **parts))
    return None if found is None else found.frames[0]


def test_lag_and_lead_look_so_many_rows_back_and_ahead() -> None:
    assert frame_reaches(windowed(shifted("Lag", -2)), windowed(shifted("Lead", 3))) == (
        FrameReach(rows_behind=2),
        FrameReach(rows_ahead=3),
    )
    assert frame_reaches(windowed(shifted("Lag", -2, ignore_nulls=True))) is None


@pytest.mark.parametrize("kind", ["NTile", "PercentRank", "CumeDist"])
def test_what_needs_to_know_how_many_rows_there_are_takes_whole_partitions(kind: str) -> None:
    assert reach(window(windowed(Tree(kind)))) is None


def test_frames_look_as_far_as_they_reach() -> None:
    total = aggregate("Sum", column(VALUE))
    assert frame_reaches(windowed(total, frame("RowFrame", literal(-2), literal(1)))) == (FrameReach(2, 1),)
    assert frame_reaches(windowed(total, frame("RowFrame", literal(-3), literal(-1)))) == (FrameReach(rows_behind=3),)
    assert frame_reaches(windowed(total, frame("RangeFrame", literal(-10, LongType()), CURRENT))) == (
        FrameReach(behind=10),
    )
    assert frame_reaches(windowed(total, frame("RowFrame", literal(-2), END))) is None
    assert frame_reaches(windowed(total, frame("RowFrame", Tree("Add", foldable=False), CURRENT))) is None


def test_a_range_is_counted_in_units_of_the_first_column_of_the_order() -> None:
    total = aggregate("Sum", column(VALUE))
    days = frame("RangeFrame", literal(-7), CURRENT)
    found = reach(window(windowed(total, days), by=[ordered(column(DAY)), ordered(column(AT))]))
    assert found is not None
    assert (found.frames, [one.id for one in found.order]) == (((FrameReach(behind=7),),), [DAY])
    assert reach(window(windowed(total, days), by=[ordered(column(NAME))])) is None


def test_running_values_go_on_from_the_rows_before() -> None:
    found = reach(window(windowed(aggregate("Sum", column(VALUE))), windowed(Tree("RowNumber"))))
    assert found is not None
    assert found.running == (Running("sum", VALUE, IntegerType()), Running("rows"))
    assert found.onward
    assert found.sentence() == "rows from the first change on"


@pytest.mark.parametrize(
    "function",
    [
        aggregate("Max", column(VALUE)),
        aggregate("Sum", column(VALUE), filtered=True),
        aggregate("Sum", column(99, DoubleType())),
        Tree("DenseRank"),
    ],
)
def test_what_cannot_go_on_takes_whole_partitions_unless_the_first_rows_are_wanted(function: Any) -> None:
    assert reach(window(windowed(function))) is None
    rank, at_most = windowed(Tree("RowNumber"), number=60), Tree("LessThanOrEqual", column(60), literal(5))
    found = reach(window(windowed(function), rank), above=[Tree("Filter", condition=at_most)])
    assert found is not None
    assert (found.first, found.running) == (FirstRows(5, False), ())
    assert found.sentence() == "the first rows of the partitions touched, up to 5"


@pytest.mark.parametrize(
    ("condition", "limit"),
    [
        (Tree("LessThanOrEqual", column(50), literal(3)), 3),
        (Tree("LessThan", column(50), literal(3)), 2),
        (Tree("EqualTo", literal(4), column(50)), 4),
        (Tree("GreaterThan", literal(3), column(50)), 2),
        (Tree("LessThan", column(50), literal(-5)), 1),
        (Tree("LessThanOrEqual", literal(3), column(50)), None),
        (Tree("GreaterThan", column(50), literal(3)), None),
        (Tree("LessThan", column(AT), literal(3)), None),
        (Tree("LessThan", column(50), Tree("Literal", value=2.5)), None),
    ],
)
def test_a_filter_on_the_number_of_a_row_leaves_the_first(condition: Any, limit: int | None) -> None:
    found = reach(window(windowed(Tree("Rank"))), above=[Tree("Filter", condition=condition)])
    assert found is not None
    assert found.first == (None if limit is None else FirstRows(limit, False))


def test_the_smallest_limit_counts_and_a_dense_rank_counts_values() -> None:
    renamed = Tree("Alias", child=column(51))
    renamed.__dict__["_headrace_id"] = 70
    above = [
        Tree("Filter", condition=Tree("LessThan", column(50), literal(9))),
        Tree("Project", projectList=sequence([column(AT), renamed])),
        Tree("Filter", condition=Tree("LessThanOrEqual", column(70), literal(4))),
    ]
    ranks = windowed(Tree("RowNumber")), windowed(Tree("DenseRank"), number=51)
    found = reach(window(*ranks), above=above)
    assert found is not None
    assert found.first == FirstRows(4, True)
    assert found.sentence() == "the first values of the partitions touched, up to 4"
    # A filter above anything else is on other rows.
    found = reach(window(windowed(Tree("RowNumber"))), above=[Tree("Aggregate"), above[0]])
    assert found is not None
    assert found.first is None


def test_windows_share_the_first_columns_of_their_orders() -> None:
    lag = windowed(shifted("Lag", -1))
    both, one = [ordered(column(AT)), ordered(column(VALUE), True)], [ordered(column(AT))]
    found = reach(window(lag, by=both), window(lag, by=one))
    assert found is not None
    assert found.order == (ASCENDING,)
    assert reach(window(lag, by=both), window(lag, by=[ordered(column(AT), True)])) is None


def test_an_order_ends_where_it_cannot_be_compared_as_bytes() -> None:
    lag = windowed(shifted("Lag", -1))

    def order(*by: Any) -> list[int] | None:
        found = reach(window(lag, by=list(by)))
        return None if found is None else [one.id for one in found.order]

    assert order(ordered(column(KEY)), ordered(column(AT)), ordered(column(AT))) == [AT]
    assert order(ordered(column(NAME)), ordered(column(AT))) == [NAME]
    assert order(ordered(Tree("Add")), ordered(column(AT))) is None
    assert order(ordered(column(99))) is None
    assert order() is None


def test_only_windows_over_the_keys_of_what_is_stored_are_read_in_pieces() -> None:
    lag = windowed(shifted("Lag", -1))
    assert reach(window(lag)) is not None
    assert reach(Tree("Project"), window(lag)) is not None
    assert reach(window(lag), Tree("Aggregate")) is None
    assert reach(window(lag, partition=[column(VALUE)])) is None
    assert reach(window(lag, partition=[Tree("Add")])) is None
    assert reach(window(lag, partition=[column(99)]), keys=(99,)) is None
