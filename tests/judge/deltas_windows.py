"""The change that hurts most, for each case about windows, order, time and stacks (C73 to C103)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.judge.deltas_groups import copies, ev, t, values
from tests.judge.deltas_joins import dim
from tests.judge.schemas import at
from tests.judge.steps import Step, both, cut, put

HOUR = "2025-11-01 10:"


def timed(group: str | None, *points: tuple[int, str | None, int | None]) -> dict[str, Any]:
    """Rows of t as (id, minute of one hour, v)."""
    return t(*({"id": i, "g": group, "ts": at(HOUR + m) if m else None, "v": v} for i, m, v in points))


def ranged(*points: tuple[int, int | None, int | None]) -> dict[str, Any]:
    """Rows of t in one group as (id, k, v)."""
    return t(*({"id": i, "g": "a", "k": k, "v": v} for i, k, v in points))


def doc(row: int, xs: list[int | None] | None) -> dict[str, Any]:
    return put("doc", id=row, xs=xs)


WINDOW_DELTAS: dict[str, list[Step]] = {
    "C73": [
        Step("two partitions", both(values("a", 5, 5, 9, first=10), values(None, 1, 2, first=20))),
        Step("an insert at the front", values("a", 1)),
        Step("v NULL comes first of all", values("a", None, first=2)),
        Step("a row moves to the NULL partition", values(None, 5, first=10)),
        Step("the front goes", cut("t", {"id": 1}, {"id": 2})),
        Step("the NULL partition goes", cut("t", {"id": 10}, {"id": 20}, {"id": 21})),
    ],
    "C75": [
        Step("ties", values("a", 5, 5, 5, 9, None, None)),
        Step("a tie breaks", values("a", 4, first=2)),
        Step("a tie forms with the last", values("a", 9, first=3)),
        Step("NULL ties break", values("a", 1, first=5)),
        Step("the first goes", cut("t", id=6)),
    ],
    "C77": [
        Step("a line", timed("a", *((i, f"{i:02d}", i * i) for i in range(1, 8)))),
        Step("the middle goes", cut("t", id=4)),
        Step("another takes its place", timed("a", (9, "04", 1))),
        Step("ts NULL is first", timed("a", (7, None, 49))),
        Step("a tie of ts, decided by id", timed("a", (8, "02", 3), (0, "02", 4))),
        Step("v alone changes", timed("a", (9, "04", None))),
        Step("a move to another partition", timed("b", (9, "04", 1))),
    ],
    "C79": [
        Step("a line", timed("a", *((i, f"{i:02d}", i * 3) for i in range(1, 8)))),
        Step("the middle goes", cut("t", id=4)),
        Step("two neighbours NULL", timed("a", (3, "03", None), (5, "05", None))),
        Step("an insert at the front", timed("a", (9, "00", 100))),
        Step("all but one go", cut("t", {"id": 1}, {"id": 2}, {"id": 3}, {"id": 5}, {"id": 6}, {"id": 7})),
    ],
    "C81": [
        Step("a range", ranged((1, 0, 5), (2, 1, -9), (3, 2, 7), (4, 4, 8), (5, None, 1), (6, None, -1))),
        Step("the minimum goes", cut("t", id=2)),
        Step("it returns elsewhere", ranged((2, 6, -9))),
        Step("it moves within reach", ranged((2, 3, -9))),
        Step("its v NULL", ranged((2, 3, None))),
        Step("k NULL: peers of NULL", ranged((2, None, -50))),
    ],
    "C83": [
        Step("values", values("a", 1, 2, 3)),
        Step("the first v NULL", values("a", None)),
        Step("the second too", values("a", None, first=2)),
        Step("a row before all", values("a", 8, first=0)),
        Step("the last v NULL", values("a", None, first=3)),
        Step("only one row", cut("t", {"id": 1}, {"id": 2}, {"id": 3})),
    ],
    "C85": [
        Step("rows", values("a", 1, None, 3, first=10)),
        Step("the smallest id", values("a", 100)),
        Step("a NULL in front of all changes no sum", values("a", None, first=0)),
        Step("the last goes", cut("t", id=12)),
        Step("the smallest goes", cut("t", {"id": 0}, {"id": 1})),
    ],
    "C87": [
        Step(
            "two sessions, a third later",
            both(
                ev(1, 1, HOUR + "00"),
                ev(2, 1, HOUR + "45"),
                ev(3, 1, "2025-11-01 12:00"),
                ev(4, 2, HOUR + "00"),
                ev(5, 1, None),
            ),
        ),
        Step("one event merges two", ev(6, 1, HOUR + "20")),
        Step("its deletion splits them", cut("ev", eid=6)),
        Step("exactly 30 minutes: the same session", ev(2, 1, HOUR + "30")),
        Step("one microsecond more", ev(2, 1, HOUR + "30:00.000001")),
        Step("a late first event shifts all", ev(7, 1, "2025-11-01 08:00")),
        Step("an event changes the user", ev(2, 2, HOUR + "30")),
        Step("uid NULL", ev(4, None, HOUR + "00")),
    ],
    "C89": [
        Step("an island of five", both(*(ev(i, 1, f"{HOUR}{i:02d}") for i in range(1, 6)))),
        Step("a flip in the middle: three islands", ev(3, 1, HOUR + "03", "view")),
        Step("a flip to NULL", ev(3, 1, HOUR + "03", None)),
        Step("back: one island", ev(3, 1, HOUR + "03")),
        Step("a flip at the edge", ev(1, 1, HOUR + "01", "void")),
        Step("the flipped one moves to the end", ev(1, 1, HOUR + "09", "void")),
        Step("the middle goes", cut("ev", eid=3)),
    ],
    "C91": [
        Step("empty, NULL, two equal", both(doc(1, []), doc(2, None), doc(3, [1, 1]))),
        Step("[] to NULL looks the same", doc(1, None), still=True),
        Step("NULL to [1, 1]", doc(1, [1, 1])),
        Step("[1, 1] to []", doc(3, [])),
        Step("a NULL inside", doc(2, [None, 1, None])),
        Step("one element less", doc(2, [None, 1])),
        Step("gone", cut("doc", {"id": 1}, {"id": 2}, {"id": 3})),
    ],
    "C93": [
        Step("five rows", values("a", 9, 7, 7, 5, None)),
        Step("below the cut", values("a", 6, first=8), still=True),
        Step("a tie with the cut, decided by id", values("a", 7, first=0)),
        Step("a top row goes", cut("t", id=1)),
        Step("a top row falls", values("a", 1, first=2)),
        Step("only two are left", cut("t", {"id": 0}, {"id": 3}, {"id": 4}, {"id": 8})),
        Step("none", cut("t", {"id": 2}, {"id": 5})),
    ],
    "C95": [
        Step("the first rows", values("a", 1, 2)),
        Step("no v is 1", values("a", 2)),
        Step("g equals a constant", values("zero", 1, 1, first=5)),
        Step("g NULL", values(None, 1, first=7)),
        Step("everything goes", cut("t", {"id": 1}, {"id": 2}, {"id": 5}, {"id": 6}, {"id": 7})),
    ],
    "C97": [
        Step(
            "two users a day",
            both(
                dim(1, "one"),
                dim(2, "two"),
                ev(1, 1, "2025-11-01 10:00", "buy", "9.00"),
                ev(2, 1, "2025-11-01 11:00", "buy", "1.00"),
                ev(3, 2, "2025-11-01 12:00", "buy", "5.00"),
                ev(4, 2, "2025-11-02 12:00", "view", "5.00"),
            ),
        ),
        Step("a void makes the other win", ev(1, 1, "2025-11-01 10:00", "void", "9.00")),
        Step("the winner is renamed", dim(2, "TWO")),
        Step("both have one name", dim(1, "TWO")),
        Step("the void is taken back", ev(1, 1, "2025-11-01 10:00", "buy", "9.00")),
        Step("the winner's dimension goes", cut("dim", k=1)),
        Step("amt NULL", ev(3, 2, "2025-11-01 12:00", "buy", None)),
        Step("name NULL and the dimension back", both(dim(2, None), dim(1, "one"))),
    ],
    "C99": [
        Step(
            "around the end of summer time",
            both(
                ev(1, 1, "2025-11-02 03:59:59"),
                ev(2, 1, "2025-11-02 04:00"),
                ev(3, 1, "2025-11-02 05:30"),
                ev(4, 1, "2025-11-02 06:30"),
                ev(5, 1, None),
            ),
        ),
        Step(
            "the day ends an hour later",
            both(ev(6, 1, "2025-11-03 04:59:59.999999"), ev(7, 1, "2025-11-03 05:00")),
        ),
        Step(
            "around its start",
            both(ev(8, 1, "2026-03-08 06:59:59"), ev(9, 1, "2026-03-08 07:00"), ev(10, 1, "2026-03-09 04:00")),
        ),
        Step("between the two equal local half hours", ev(3, 1, "2025-11-02 06:30"), still=True),
        Step("the earliest hour goes", cut("ev", eid=2)),
        Step("a day empties", cut("ev", {"eid": 1}, {"eid": 5})),
    ],
    "C101": [
        Step(
            "seven strings",
            both(*(copies(1, 1, s) for s in ("a", "A", "a ", "\u00e1", "a\u0301", "", None))),
        ),
        Step("a second copy of one form", both(copies(1, 2, "\u00e1"), copies(1, None, ""))),
        Step("one form goes, the other stays", both(copies(-1, 1, "\u00e1"), copies(-1, 2, "\u00e1"))),
        Step("'a ' becomes 'a'", both(copies(-1, 1, "a "), copies(1, 1, "a"))),
        Step("NULL goes, '' stays", copies(-1, 1, None)),
    ],
    "C103": [
        Step("k sums to 3", _rows := t({"id": 1, "g": "a", "k": 3, "v": 6, "d": Decimal("1.50")})),
        Step(
            "through 0 between two changes",
            t(
                {"id": 2, "g": "a", "k": -3, "v": 1, "d": Decimal("1.00")},
                {"id": 3, "g": "a", "k": 2, "v": 1, "d": Decimal("1.00")},
            ),
        ),
        Step("at 0", both(cut("t", id=3))),
        Step("below 0", t({"id": 1, "g": "a", "k": 1, "v": 6, "d": Decimal("1.50")})),
        Step("all k NULL", t({"id": 1, "g": "a", "v": 6}, {"id": 2, "g": "a", "v": 1})),
        Step("from NULL back to 3 over 0", both(t({"id": 1, "g": "a", "k": 0}), _rows, cut("t", id=2))),
    ],
}
