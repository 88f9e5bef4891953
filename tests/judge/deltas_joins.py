"""The change that hurts most, for each case about joins, subqueries and set operations (C39 to C71)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.judge.deltas_groups import copies, ev, t, values
from tests.judge.steps import Step, both, cut, put


def left(row: int, x: int | None = None, y: int | None = None) -> dict[str, Any]:
    return put("l", id=row, x=x, y=y)


def right(row: int, x: int | None = None, z: int | None = None) -> dict[str, Any]:
    return put("r", id=row, x=x, z=z)


def dim(k: int, name: str | None = None, parent: int | None = None) -> dict[str, Any]:
    return put("dim", k=k, name=name, parent=parent)


JOIN_DELTAS: dict[str, list[Step]] = {
    "C39": [
        Step("NULLs on both sides", both(left(1), left(2, 1), right(1), right(2), right(3, 1))),
        Step("a NULL becomes a value on the left", left(1, 1)),
        Step("a value becomes NULL on both sides", both(left(1), right(3))),
        Step("the right NULLs go", cut("r", {"id": 1}, {"id": 2}, {"id": 3})),
    ],
    "C41": [
        Step("rows", both(left(1, 1), left(2, 1), right(1, 1, 5), right(2, 2, 5), right(3, None, 1))),
        Step("z crosses 0 downwards: the match goes, the row stays", right(1, 1, 0)),
        Step("z NULL", right(1, 1, None)),
        Step("z crosses 0 upwards", right(1, 1, 3)),
        Step("the last left match goes", cut("l", {"id": 1}, {"id": 2})),
        Step("both sides in one batch", both(left(3, 2), right(2, 2, 7), cut("r", id=1))),
    ],
    "C43": [
        Step("rows", both(left(1, 1, 1), left(2, 1, -1), left(3, None, 5), right(1, 1, 7), right(2, 1, 7))),
        Step("y crosses 0", both(left(1, 1, 0), left(2, 1, 1))),
        Step("y NULL", left(2, 1, None)),
        Step("y back, matches gone in the same batch", both(left(2, 1, 1), cut("r", {"id": 1}, {"id": 2}))),
        Step("a match for a row that may not have one", both(left(4, 2, -1), right(3, 2, 1))),
    ],
    "C45": [
        Step("rows", both(left(1, 1), left(2, 2), left(3), right(1, 1), right(2, 1))),
        Step("one of two matches goes", cut("r", id=1), still=True),
        Step("the last match goes", cut("r", id=2)),
        Step("a match comes", right(3, 2)),
        Step("left and match in one batch", both(left(4, 3), right(4, 3))),
        Step("the match moves away", right(4, None)),
    ],
    "C47": [
        Step("copies", both(copies(2, 1, "a"), copies(1, None, "n"), copies(2, 1, "x", "bag2"))),
        Step("right 2 to 1", copies(-1, 1, "x", "bag2"), still=True),
        Step("right 1 to 0", copies(-1, 1, "x", "bag2")),
        Step("right NULL joins nothing", copies(1, None, "x", "bag2"), still=True),
        Step("back, and one left copy less", both(copies(-1, 1, "a"), copies(1, 1, "y", "bag2"))),
    ],
    "C49": [
        Step("rows", both(left(1, 1, 5), left(2, 1, None), left(3, None, 1), right(1, 1, 6), right(2, 1, 4))),
        Step("z falls to y: no longer greater", right(1, 1, 5)),
        Step("y NULL: in by the other side of OR", left(1, 1, None)),
        Step("y back, with a match", both(left(1, 1, 3))),
        Step("all matches go", cut("r", {"id": 1}, {"id": 2})),
        Step("x NULL never matches", both(right(3, None, 99), left(4, None, 1)), still=True),
    ],
    "C51": [
        Step("nothing above an average of NULLs", values("a", None, None), still=True),
        Step("values", values("a", 1, 2, 3, 4, first=3)),
        Step("an outlier takes the place of most", values("a", 1000, first=9)),
        Step("it goes", cut("t", id=9)),
        Step("everything goes", cut("t", *({"id": i} for i in range(1, 7)))),
        Step("one row is not above itself", values("a", 5), still=True),
    ],
    "C53": [
        Step("a group of three", values("a", 1, 2, 3)),
        Step("one row moves on both sides", values("a", 2)),
        Step("it leaves the group", values("b", 2)),
        Step("it returns as another leaves", both(values("a", 5), cut("t", id=3))),
        Step("v NULL", values("a", None)),
        Step("g NULL joins nothing", values(None, 1, 2), still=False),
    ],
    "C55": [
        Step("all three", both(left(1, 1), right(1, 1, 2), dim(2, "two"))),
        Step(
            "all three change",
            both(left(1, 3), right(1, 3, 4), right(2, 3, 2), dim(4, "four"), dim(2, "2")),
        ),
        Step("a dimension goes", cut("dim", k=4)),
        Step("it returns as all inputs move", both(dim(4, None), left(2, 3), cut("l", id=1), right(2, 3, 4))),
        Step("NULL keys", both(right(1, None, 4), right(2, 3, None))),
    ],
    "C57": [
        Step("one side only", both(left(1, None, 4), left(2, None, 10)), still=True),
        Step("the other side", both(right(1, None, 6), right(2, None, 0), right(3))),
        Step("both sides move to another sum", both(left(1, None, 7), right(1, None, 3))),
        Step("one side goes", cut("r", {"id": 1}, {"id": 2}, {"id": 3})),
        Step("it is filled again", both(right(1, None, 0), left(3))),
    ],
    "C59": [
        Step("dimensions", both(dim(1, "one"), dim(2, "two"))),
        Step(
            "a group appears",
            both(ev(1, 1, None, "buy", "2.50"), ev(2, 1, None, "buy", None), ev(3, None, None)),
        ),
        Step("a row of it goes", cut("ev", eid=1)),
        Step("the group vanishes", cut("ev", eid=2)),
        Step("group and dimension in one batch", both(ev(4, 3, None), dim(3, "three"), cut("dim", k=1))),
        Step("the event moves to another group", ev(4, 2, None)),
    ],
    "C61": [
        Step("no v: NULL", values("a", None), still=True),
        Step("values", both(values("a", 5, None, -5, first=2), values(None, 7, first=9)), still=False),
        Step("rows move between groups", both(values("b", 5, first=2), values("a", 7, first=9)), still=True),
        Step("all v NULL", both(values("b", None, first=2), values("a", None, None, None, first=3))),
        Step("9 is left, NULL", cut("t", id=9)),
    ],
    "C63": [
        Step(
            "mixed case and cut decimals",
            both(
                dim(2, "A"),
                dim(0, "a"),
                t(
                    {"id": 1, "g": "a", "d": Decimal("2.99")},
                    {"id": 2, "g": "A", "d": Decimal("-0.50")},
                    {"id": 3, "g": "b", "d": Decimal("2.00")},
                ),
            ),
        ),
        Step("other decimals of the same key", t({"id": 1, "g": "A", "d": Decimal("2.01")}), still=True),
        Step("the name changes its case", dim(2, "a"), still=True),
        Step("the name changes", both(dim(2, "B"))),
        Step("NULLs", both(t({"id": 1, "g": None, "d": Decimal("2.01")}), dim(0, None))),
    ],
    "C65": [
        Step("two members", values("a", 1, 2), still=True),
        Step("the third arrives", values("a", None, first=3)),
        Step("a fourth", values("a", 4, first=4)),
        Step("two leave", cut("t", {"id": 1}, {"id": 4})),
        Step("three NULLs are no group to be in", values(None, 1, 2, 3, first=10)),
        Step(
            "a move fills one group and empties another",
            both(values("b", 1, 2, first=20), values("b", 9, first=2)),
        ),
    ],
    "C67": [
        Step("copies double", both(copies(2, 1, "a"), copies(1, 1, "a", "bag2"))),
        Step("one less in each", both(copies(-1, 1, "a"), copies(-1, 1, "a", "bag2"))),
        Step(
            "a move from one table to the other",
            both(copies(-1, 1, "a"), copies(2, 1, "a", "bag2")),
            still=True,
        ),
        Step("NULLs", both(copies(1, None, None), copies(1, None, None, "bag2"))),
    ],
    "C69": [
        Step("NULL, NULL in both", both(copies(2, None, None), copies(1, None, None, "bag2"))),
        Step("left 2 to 1", copies(-1, None, None), still=True),
        Step("right goes as left grows", both(copies(1, None, None), copies(-1, None, None, "bag2"))),
        Step("both come at once", both(copies(1, 1, ""), copies(3, 1, "", "bag2"), copies(1, 1, None, "bag2"))),
        Step("both go at once", both(copies(-1, 1, ""), copies(-3, 1, "", "bag2"))),
    ],
    "C71": [
        Step("three left, one right", both(copies(3, 1, "a"), copies(1, 1, "a", "bag2")), still=True),
        Step("the right copy goes: one row returns", copies(-1, 1, "a", "bag2")),
        Step("left 3 to 1", copies(-2, 1, "a"), still=True),
        Step("right NULLs", both(copies(1, None, None), copies(2, None, None, "bag2"))),
        Step("right NULLs go", both(copies(-2, None, None, "bag2"))),
        Step("left goes as right comes", both(copies(-1, 1, "a"), copies(1, 1, "a", "bag2"))),
    ],
}
