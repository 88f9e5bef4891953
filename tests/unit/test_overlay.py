"""What an epoch accepts for a table, and the net change that it leaves."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from headrace.intake.overlay import Found, KeptCell, Net, Overlay, Taken, Tombstone
from headrace.intake.table import TableContract

NOW = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = StructType(
    [
        StructField("id", IntegerType(), False),
        StructField("seq", LongType()),
        StructField("name", StringType()),
    ]
)
ABSENT = "the row to delete is not in the table"


class Committed:
    """A table's committed state, which remembers what it was asked."""

    def __init__(
        self,
        rows: Iterable[tuple[int, int | None, str | None]] = (),
        tombstones: dict[int, int] | None = None,
    ) -> None:
        self.rows = list(rows)
        self.buried = tombstones or {}
        self.asked: list[list[tuple[Any, ...]]] = []

    def lookup(self, keys: list[tuple[Any, ...]]) -> dict[Any, Found]:
        self.asked.append(keys)
        return {(row[0],): Found(f"handle {row[0]}", row[1]) for row in self.rows if (row[0],) in keys}

    def tombstones(self, keys: list[tuple[Any, ...]]) -> dict[Any, Any]:
        return {(key,): sequence for key, sequence in self.buried.items() if (key,) in keys}

    def count(self, rows: list[tuple[Any, ...]]) -> dict[Any, int]:
        self.asked.append(rows)
        return {row: self.rows.count(row) for row in rows if row in self.rows}

    def overlay(self, *, key: tuple[str, ...] = ("id",), sequence: str | None = None) -> Overlay:
        contract = TableContract("t", SCHEMA, key, sequence)
        return Overlay(contract, lookup=self.lookup, tombstones=self.tombstones, count=self.count)


def insert(id: int, seq: int | None = None, name: str | None = None) -> object:  # noqa: A002
    return {"insert": {"id": id, "seq": seq, "name": name}}


def delete(**row: object) -> object:
    return {"delete": row}


def update(**row: object) -> object:
    return {"update": row}


KEYED: list[tuple[str, list[object], Net]] = [
    ("a new key", [insert(9, name="a")], Net(added_rows=[((9, None, "a"), 1)])),
    (
        "an insert replaces",
        [insert(1, name="b")],
        Net(removed_handles=["handle 1"], added_rows=[((1, None, "b"), 1)]),
    ),
    ("a delete", [delete(id=1)], Net(removed_handles=["handle 1"])),
    ("a delete of an absent key is nothing", [delete(id=9)], Net()),
    ("in and out again leaves nothing", [insert(9), insert(9, name="b"), delete(id=9)], Net()),
    (
        "the last of a key wins",
        [insert(9, name="a"), insert(9, name="b")],
        Net(added_rows=[((9, None, "b"), 1)]),
    ),
    (
        "an update keeps what it does not name of the committed row",
        [update(id=1, seq=7)],
        Net(removed_handles=["handle 1"], added_rows=[((1, 7, None), 1)], kept_cells=[KeptCell(0, 2, "handle 1")]),
    ),
    (
        "two updates keep of each other and of the committed row",
        [update(id=1, seq=7), update(id=1), update(id=1, seq=8)],
        Net(removed_handles=["handle 1"], added_rows=[((1, 8, None), 1)], kept_cells=[KeptCell(0, 2, "handle 1")]),
    ),
    (
        "an update keeps of a change before it",
        [insert(9, 1, "a"), update(id=9, seq=2), update(id=9, name="b")],
        Net(added_rows=[((9, 2, "b"), 1)]),
    ),
    (
        "nothing of the committed row is kept over an insert",
        [update(id=1, seq=7), insert(1, 8, "b"), update(id=1, seq=9)],
        Net(removed_handles=["handle 1"], added_rows=[((1, 9, "b"), 1)]),
    ),
    (
        "an update that names every column needs no row",
        [{"update": {"id": 9, "seq": 1, "name": "a"}}],
        Net(added_rows=[((9, 1, "a"), 1)]),
    ),
    (
        "out and in again replaces",
        [delete(id=1), insert(1, name="c")],
        Net(removed_handles=["handle 1"], added_rows=[((1, None, "c"), 1)]),
    ),
]


@pytest.mark.parametrize(("what", "changes", "net"), KEYED, ids=[case[0] for case in KEYED])
def test_changes_by_key(what: str, changes: list[object], net: Net) -> None:
    together = Committed([(1, 1, "a")]).overlay()
    assert together.take(changes, NOW) == Taken(len(changes))
    assert together.net() == net
    assert bool(together.net()) == (net != Net())
    apart = Committed([(1, 1, "a")]).overlay()
    for change in changes:
        assert apart.take([change], NOW) == Taken(1)
    assert apart.net() == net


# Key 1 has a row of sequence 5, key 2 a tombstone of sequence 5, key 9 nothing.
SEQUENCED: list[tuple[str, list[object], int, Net]] = [
    (
        "a newer insert replaces",
        [insert(1, 6)],
        0,
        Net(removed_handles=["handle 1"], added_rows=[((1, 6, None), 1)]),
    ),
    (
        "an equal insert replaces",
        [insert(1, 5, "b")],
        0,
        Net(removed_handles=["handle 1"], added_rows=[((1, 5, "b"), 1)]),
    ),
    ("an older insert is stale", [insert(1, 4)], 1, Net()),
    ("an older delete is stale", [delete(id=1, seq=4)], 1, Net()),
    (
        "a delete leaves a tombstone",
        [delete(id=1, seq=6)],
        0,
        Net(removed_handles=["handle 1"], tombstones_set=[Tombstone((1,), 6, NOW)]),
    ),
    (
        "also an equal one",
        [delete(id=1, seq=5)],
        0,
        Net(removed_handles=["handle 1"], tombstones_set=[Tombstone((1,), 5, NOW)]),
    ),
    (
        "also one of an absent key",
        [delete(id=9, seq=3), insert(9, 2)],
        1,
        Net(tombstones_set=[Tombstone((9,), 3, NOW)]),
    ),
    ("a late insert resurrects nothing", [insert(2, 4)], 1, Net()),
    (
        "an insert equal to the tombstone revives",
        [insert(2, 5)],
        0,
        Net(added_rows=[((2, 5, None), 1)], tombstones_removed=[(2,)]),
    ),
    (
        "a newer insert revives",
        [insert(2, 7)],
        0,
        Net(added_rows=[((2, 7, None), 1)], tombstones_removed=[(2,)]),
    ),
    (
        "a newer delete moves the tombstone",
        [delete(id=2, seq=8)],
        0,
        Net(tombstones_set=[Tombstone((2,), 8, NOW)]),
    ),
    ("the same delete again changes nothing", [delete(id=2, seq=5)], 0, Net()),
    (
        "revived and deleted again",
        [insert(2, 6), delete(id=2, seq=7), insert(2, 6)],
        1,
        Net(tombstones_set=[Tombstone((2,), 7, NOW)]),
    ),
    (
        "deleted and revived at one sequence",
        [delete(id=9, seq=1), insert(9, 1)],
        0,
        Net(added_rows=[((9, 1, None), 1)]),
    ),
    (
        "out of order",
        [insert(9, 3, "c"), insert(9, 1, "a"), insert(9, 2, "b")],
        2,
        Net(added_rows=[((9, 3, "c"), 1)]),
    ),
]


@pytest.mark.parametrize(("what", "changes", "stale", "net"), SEQUENCED, ids=[case[0] for case in SEQUENCED])
def test_changes_by_sequence(what: str, changes: list[object], stale: int, net: Net) -> None:
    together = Committed([(1, 5, "a")], {2: 5}).overlay(sequence="seq")
    assert together.take(changes, NOW) == Taken(len(changes) - stale, stale)
    assert together.net() == net
    apart = Committed([(1, 5, "a")], {2: 5}).overlay(sequence="seq")
    assert sum(apart.take([change], NOW).stale for change in changes) == stale
    assert apart.net() == net


def test_a_change_without_its_sequence_is_rejected() -> None:
    overlay = Committed().overlay(sequence="seq")
    taken = overlay.take([insert(1, 1), insert(1), delete(id=1), delete(id=1, seq=None)], NOW)
    assert [rejection.index for rejection in taken.rejections] == [1, 2, 3]
    assert all("SEQUENCE BY needs it" in rejection.reason for rejection in taken.rejections)
    assert overlay.net() == Net()


ONE = (1, 1, "a")
BAG: list[tuple[str, list[object], list[int], Net]] = [
    ("rows add up", [insert(*ONE), insert(*ONE)], [], Net(added_rows=[(ONE, 2)])),
    ("a delete takes one", [delete(id=1, seq=1, name="a")], [], Net(removed_rows=[(ONE, 1)])),
    ("two deletes take both", [delete(id=1, seq=1, name="a")] * 2, [], Net(removed_rows=[(ONE, 2)])),
    ("a third is rejected", [delete(id=1, seq=1, name="a")] * 3, [2], Net()),
    (
        "unless one came in before",
        [insert(*ONE), *[delete(id=1, seq=1, name="a")] * 3],
        [],
        Net(removed_rows=[(ONE, 2)]),
    ),
    ("what comes later does not count", [*[delete(id=1, seq=1, name="a")] * 3, insert(*ONE)], [2], Net()),
    ("in and out leaves nothing", [insert(9), delete(id=9)], [], Net()),
    ("an absent row is rejected", [delete(id=9)], [0], Net()),
    ("nothing of a rejected call stays", [insert(8), delete(id=9), insert(7)], [1], Net()),
]


@pytest.mark.parametrize(("what", "changes", "rejected", "net"), BAG, ids=[case[0] for case in BAG])
def test_changes_without_a_key(what: str, changes: list[object], rejected: list[int], net: Net) -> None:
    overlay = Committed([ONE, ONE, (2, 2, "b")]).overlay(key=())
    taken = overlay.take(changes, NOW)
    assert [(rejection.index, rejection.reason) for rejection in taken.rejections] == [
        (index, ABSENT) for index in rejected
    ]
    assert taken.applied == (0 if rejected else len(changes))
    assert overlay.net() == net


def test_every_rejection_is_listed_with_its_change() -> None:
    overlay = Committed().overlay(key=())
    changes = [insert(1), {"insert": {"id": "x"}}, delete(id=5), "nonsense"]
    taken = overlay.take(changes, NOW)
    assert taken.applied == taken.stale == 0
    assert [(r.table, r.index, r.change) for r in taken.rejections] == [("t", n, changes[n]) for n in (1, 2, 3)]
    assert overlay.net() == Net()


def test_a_later_call_stands_on_the_earlier_ones() -> None:
    overlay = Committed([ONE]).overlay(key=())
    assert overlay.take([delete(id=1, seq=1, name="a"), insert(5)], NOW) == Taken(2)
    assert overlay.take([delete(id=1, seq=1, name="a")], NOW).rejections
    assert overlay.take([delete(id=5)], NOW) == Taken(1)
    assert overlay.net() == Net(removed_rows=[(ONE, 1)])


def test_a_call_is_undone_as_if_it_had_not_come() -> None:
    overlay = Committed([(1, 5, "a")], {2: 5}).overlay(sequence="seq")
    overlay.take([insert(1, 6, "b"), insert(3, 1)], NOW)
    before = overlay.net()
    mark = overlay.checkpoint()
    overlay.take([delete(id=1, seq=9), insert(2, 9), insert(3, 2), insert(4, 1)], NOW)
    assert overlay.net() != before
    overlay.rollback(mark)
    assert overlay.net() == before
    assert overlay.take([insert(1, 7)], NOW) == Taken(1)


def test_the_committed_state_is_asked_once_a_call_and_once_a_key() -> None:
    keyed = Committed([(1, 1, "a")])
    overlay = keyed.overlay()
    overlay.take([insert(1), insert(2), delete(id=1)], NOW)
    overlay.take([insert(2), insert(3)], NOW)
    overlay.take([insert(1), insert(3)], NOW)
    assert keyed.asked == [[(1,), (2,)], [(3,)]]
    bag = Committed([ONE])
    overlay = bag.overlay(key=())
    overlay.take([insert(7), insert(8)], NOW)
    overlay.take([delete(id=1, seq=1, name="a"), delete(id=7)], NOW)
    overlay.take([delete(id=8), delete(id=7)], NOW)
    assert bag.asked == [[ONE, (7, None, None)], [(8, None, None)]]


def test_a_failed_look_leaves_the_overlay_as_it_was() -> None:
    committed = Committed([(1, 5, "a")], {2: 5})
    contract = TableContract("t", SCHEMA, ("id",), "seq")
    broken = [True]

    def tombstones(keys: list[tuple[Any, ...]]) -> dict[Any, Any]:
        if broken.pop():
            raise OSError("disk")
        return committed.tombstones(keys)

    overlay = Overlay(contract, lookup=committed.lookup, tombstones=tombstones)
    with pytest.raises(OSError, match="disk"):
        overlay.take([insert(2, 4)], NOW)
    broken.append(False)
    assert overlay.take([insert(2, 4)], NOW) == Taken(0, 1)


def test_an_overlay_without_its_looks_is_a_mistake() -> None:
    for contract in (
        TableContract("t", SCHEMA),
        TableContract("t", SCHEMA, ("id",)),
        TableContract("t", SCHEMA, ("id",), "seq"),
    ):
        with pytest.raises(ValueError, match="table t has"):
            Overlay(contract)


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        ([[update(id=9, seq=1)]], {0}),
        ([[delete(id=1), update(id=1, seq=1), update(id=1, seq=2)]], {1, 2}),
        ([[delete(id=1)], [insert(2), update(id=1, seq=1)]], {1}),
        ([[insert(9)], [delete(id=9), update(id=9, name="x")]], {1}),
    ],
)
def test_an_update_without_a_row_to_keep_is_refused_with_its_call(calls: list[list[object]], refused: set[int]) -> None:
    overlay = Committed([(1, None, "a")]).overlay()
    *accepted, last = calls
    assert all(not overlay.take(call, NOW).rejections for call in accepted)
    before = overlay.net()
    taken = overlay.take(last, NOW)
    assert {one.index for one in taken.rejections} == refused
    assert all("no row of this key" in one.reason for one in taken.rejections)
    assert (taken.applied, overlay.net()) == (0, before)


def test_an_update_that_is_too_old_is_stale_whether_or_not_there_is_a_row() -> None:
    overlay = Committed([(1, 5, "a")], {2: 5}).overlay(sequence="seq")
    taken = overlay.take([update(id=1, seq=4), update(id=2, seq=4), update(id=1, seq=5)], NOW)
    assert taken == Taken(1, 2)
    assert overlay.take([update(id=2, seq=6)], NOW).rejections
    assert "part of the key" in overlay.take([update(seq=6)], NOW).rejections[0].reason
    assert "SEQUENCE BY" in overlay.take([update(id=1)], NOW).rejections[0].reason


def test_a_table_without_a_key_has_nothing_to_keep() -> None:
    overlay = Committed([(1, 5, "a")]).overlay(key=())
    assert overlay.take([{"update": {"id": 1, "seq": 5, "name": "b"}}], NOW) == Taken(1)
    overlay = Committed([(1, 5, "a")]).overlay(key=())
    assert "id is missing" in overlay.take([update(seq=5)], NOW).rejections[0].reason
