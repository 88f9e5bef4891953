"""The change that hurts most, for each case about filters, DISTINCT and groups (C01 to C37).

Every sequence starts with its case's tables empty.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.judge.schemas import at
from tests.judge.steps import Step, both, cut, put

NAN = float("nan")


def t(*rows: dict[str, Any]) -> dict[str, Any]:
    return put("t", *rows)


def values(group: str | None, *numbers: Any, first: int = 1, column: str = "v") -> dict[str, Any]:
    """Rows of t in one group with consecutive ids and these values."""
    return put("t", *({"id": first + i, "g": group, column: n} for i, n in enumerate(numbers)))


def copies(count: int, a: int | None, s: str | None, table: str = "bag") -> dict[str, Any]:
    """So many copies of one row more, or less when negative."""
    row = {"a": a, "s": s}
    return put(table, *[row] * count) if count > 0 else cut(table, *[row] * -count)


def ev(eid: int, uid: int | None, ts: str | None, typ: str | None = "buy", amt: str | None = "1.00") -> Any:
    return put("ev", eid=eid, uid=uid, ts=at(ts) if ts else None, typ=typ, amt=Decimal(amt) if amt else None)


GROUP_DELTAS: dict[str, list[Step]] = {
    "C01": [
        Step("v NULL", t({"id": 1}, {"id": 2, "v": 3})),
        Step("v 5", t({"id": 1, "v": 5})),
        Step("v 20", t({"id": 1, "v": 20})),
        Step("v NULL again: it was out before", t({"id": 1}), still=True),
        Step("v 10, at the bound", t({"id": 1, "v": 10})),
    ],
    "C03": [
        Step("rows", t({"id": 1, "g": "a", "v": 1}, {"id": 2, "g": None, "v": 2})),
        Step(
            "v, d and ts change",
            t(
                {"id": 1, "g": "a", "v": 9, "d": Decimal("1.00"), "ts": at("2025-11-01 00:00")},
                {"id": 2, "g": None, "v": None, "f": NAN},
            ),
            still=True,
        ),
        Step("g changes too", t({"id": 1, "g": "b", "v": 9})),
    ],
    "C05": [
        Step("three copies", copies(3, 1, "a")),
        Step("two", copies(-1, 1, "a"), still=True),
        Step("one", copies(-1, 1, "a"), still=True),
        Step("none", copies(-1, 1, "a")),
        Step("one again", copies(1, 1, "a")),
        Step("NULLs, twice", copies(2, None, None)),
        Step("NULLs, once", copies(-1, None, None), still=True),
    ],
    "C07": [
        Step("one row without v", t({"id": 1})),
        Step("rows", values("a", 5, -3, None, first=2)),
        Step("the extremes go", cut("t", {"id": 2}, {"id": 3})),
        Step("everything goes", cut("t", {"id": 1}, {"id": 4})),
        Step("a start again", values("a", 7)),
    ],
    "C09": [
        Step("two rows of one group", t({"id": 1, "g": "a", "b": True}, {"id": 2, "g": "a", "b": True})),
        Step("one goes", cut("t", id=1), still=True),
        Step("the other moves to NULL", t({"id": 2, "g": "a"})),
        Step("the last one goes", cut("t", id=2)),
        Step("NULL, NULL", t({"id": 3})),
    ],
    "C11": [
        Step("'' twice, NULL, 'A', 'a'", both(copies(2, 1, ""), *(copies(1, 1, s) for s in (None, "A", "a")))),
        Step("one copy of the minimum", copies(-1, 1, "")),
        Step("the other copy", copies(-1, 1, "")),
        Step("the maximum", copies(-1, 1, "a")),
        Step("only NULL is left", copies(-1, 1, "A")),
        Step("the group goes", copies(-1, 1, None)),
    ],
    "C13": [
        Step("values", values("a", 1, 2, None)),
        Step("all v NULL", values("a", None, None, None)),
        Step("one value", values("a", 7)),
        Step("the group goes", cut("t", {"id": 1}, {"id": 2}, {"id": 3})),
    ],
    "C15": [
        Step("duplicates", values("a", 5, 5, 5, 2, None)),
        Step("one of three", cut("t", id=1)),
        Step("another", cut("t", id=2)),
        Step("the last 5", cut("t", id=3)),
        Step("only NULL", cut("t", id=4)),
        Step("-5 and 5 sum to 0", values("a", 5, -5, first=6)),
    ],
    "C17": [
        Step(
            "two days",
            both(
                ev(1, 1, "2025-11-01 10:00"),
                ev(2, 1, "2025-11-01 11:00"),
                ev(3, 2, "2025-11-01 12:00", "view"),
                ev(4, 2, "2025-11-02 00:00"),
                ev(5, None, "2025-11-02 01:00"),
                ev(6, 3, None),
            ),
        ),
        Step("buy to view, another buy of the user stays", ev(1, 1, "2025-11-01 10:00", "view")),
        Step("the other one too", ev(2, 1, "2025-11-01 11:00", "view")),
        Step("view to buy", ev(3, 2, "2025-11-01 12:00", "buy", "2.50")),
        Step("typ NULL", ev(3, 2, "2025-11-01 12:00", None, "2.50")),
        Step("one event of the user goes, one stays", cut("ev", eid=1)),
    ],
    "C19": [
        Step("one copy", copies(1, 1, "a"), still=True),
        Step("two", copies(1, 1, "a")),
        Step("three", copies(1, 1, "a")),
        Step("one", copies(-2, 1, "a")),
        Step("NULLs twice", copies(2, None, None)),
    ],
    "C21": [
        Step("values", both(copies(2, 1, "b"), copies(1, 1, "a"), copies(1, 1, None), copies(1, 2, None))),
        Step("values go, NULL stays", both(copies(-2, 1, "b"), copies(-1, 1, "a"))),
        Step("the group goes", copies(-1, 1, None)),
        Step("'' and NULL look alike", both(copies(1, 2, ""), copies(1, 3, "a "))),
    ],
    "C23": [
        Step("all true", t({"id": 1, "g": "a", "b": True, "v": 1}, {"id": 2, "g": "a", "b": True, "v": 2})),
        Step("one false", t({"id": 3, "g": "a", "b": False, "v": -1})),
        Step("it goes", cut("t", id=3)),
        Step("all NULL", t({"id": 1, "g": "a"}, {"id": 2, "g": "a"})),
        Step("one true among NULLs", t({"id": 1, "g": "a", "b": True, "v": 0})),
    ],
    "C25": [
        Step(
            "three",
            t(
                {"id": 1, "g": "a", "v": 1, "k": 2},
                {"id": 2, "g": "a", "v": 5, "k": -1},
                {"id": 3, "g": "a", "v": 9, "k": 3},
                {"id": 4, "g": "a", "v": None, "k": 3},
            ),
        ),
        Step("two", cut("t", id=1)),
        Step("one", cut("t", id=2)),
        Step("none that counts", cut("t", id=3)),
        Step(
            "a constant column",
            t({"id": 5, "g": "b", "v": 4, "k": 1}, {"id": 6, "g": "b", "v": 4, "k": 2}),
        ),
        Step(
            "both constant",
            t({"id": 5, "g": "b", "v": 4, "k": 1}, {"id": 6, "g": "b", "v": 4, "k": 1}),
        ),
    ],
    "C27": [
        Step("1e9 + {0, 1, 2}", values("a", 1e9, 1e9 + 1, 1e9 + 2, column="f")),
        Step("1e15 comes", values("a", 1e15, first=9, column="f")),
        Step("1e15 goes", cut("t", id=9)),
        Step("1e15 comes and -1e15", values("a", 1e15, -1e15, first=9, column="f")),
        Step("both go", cut("t", {"id": 9}, {"id": 10})),
        Step("NaN comes", values("a", NAN, first=9, column="f")),
        Step("NaN goes", cut("t", id=9)),
        Step("one is left: variance 0", cut("t", {"id": 1}, {"id": 2})),
        Step("only NULL is left", values("a", None, first=3, column="f")),
    ],
    "C29": [
        Step("a clear mode", values("a", 3, 3, 1, column="k")),
        Step("a tie", values("a", 1, first=4, column="k")),
        Step("the tie breaks the other way", cut("t", id=1)),
        Step("NULLs do not count", values("a", None, None, None, first=5, column="k")),
        Step("only NULLs", cut("t", {"id": 2}, {"id": 3}, {"id": 4})),
    ],
    "C31": [
        Step("two groups", both(values("a", 10, 5), values("b", 12, first=5))),
        Step("the leader falls below the second", values("a", 1)),
        Step("NULL only", values("c", None, first=9)),
        Step("the minimum group goes", cut("t", {"id": 1}, {"id": 2})),
        Step("everything goes", cut("t", {"id": 5}, {"id": 9})),
    ],
    "C33": [
        Step(
            "rows",
            t(
                {"id": 1, "g": "a", "b": True, "k": 1, "v": 1},
                {"id": 2, "g": "a", "b": True, "k": 1, "v": 1},
                {"id": 3, "g": None, "b": None, "k": None, "v": None},
            ),
        ),
        Step("a move to another group", t({"id": 2, "g": "b", "b": False, "k": 1, "v": 1})),
        Step("everything goes", cut("t", {"id": 1}, {"id": 2}, {"id": 3})),
        Step("a start again", t({"id": 4, "g": "a", "v": 7})),
    ],
    "C35": [
        Step(
            "rows",
            t(
                {"id": 1, "k": -4, "ts": at("2025-11-01 10:05")},
                {"id": 2, "k": 2, "ts": at("2025-11-01 10:59:59.999999")},
                {"id": 3, "k": None, "ts": None},
            ),
        ),
        Step("another minute of the hour", t({"id": 1, "k": -4, "ts": at("2025-11-01 10:50")}), still=True),
        Step("another k of the same rest", t({"id": 1, "k": 5, "ts": at("2025-11-01 10:50")}), still=True),
        Step("the next hour", t({"id": 2, "k": 2, "ts": at("2025-11-01 11:00")})),
        Step("ts NULL", t({"id": 2, "k": 2, "ts": None})),
    ],
    "C37": [
        Step("both zeros and NaN", values("a", 0.0, -0.0, NAN, NAN, None, column="f")),
        Step("one NaN goes", cut("t", id=3)),
        Step("the other too", cut("t", id=4)),
        Step("0.0 becomes -0.0", values("a", -0.0, column="f"), still=True),
        Step("one zero goes", cut("t", id=2)),
        Step("the other", cut("t", id=1)),
    ],
}
