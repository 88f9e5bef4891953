"""Following a relation: changes, resets and drops from any epoch on, live and after a restart."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EpochExpired, RelationNameError, ResultTooLarge
from headrace.ledger.ledger import Ledger
from headrace.reading import following
from headrace.reading.following import Changes, Dropped, Position, Progress, Reset
from headrace.reading.history import changes_table
from headrace.state.state import BEGIN
from tests.costs import cost_of
from tests.small_relations import SmallRelations, delta_of, moment


@pytest.fixture
def home(tmp_path: Path) -> SmallRelations:
    small = SmallRelations(tmp_path / "home")
    small.define("t", "id", "n")
    return small


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which relation was read from the ledger, after which epoch."""
    seen: list[tuple[str, int]] = []
    entries = Ledger.entries

    def noted(self: Ledger, relation: Any = None, since: int = 0, until: Any = None) -> Any:
        seen.append((relation, since))
        return entries(self, relation, since, until)

    monkeypatch.setattr(Ledger, "entries", noted)
    return seen


def told(step: object) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """The epochs of a step of changes, each with its rows behind their kinds."""
    assert isinstance(step, Changes), step
    return [
        (
            changed.epoch,
            [
                (kind, *row.values())
                for kind, row in zip(changed.kinds.to_pylist(), changed.rows.to_pylist(), strict=True)
            ],
        )
        for changed in step.epochs
    ]


def held(step: object) -> list[tuple[Any, ...]]:
    assert isinstance(step, Reset), step
    piece = step.content.piece(BEGIN, 1_000_000)
    assert piece.after is None
    return sorted(tuple(row.values()) for row in piece.rows.to_pylist())


def test_the_first_step_of_one_who_has_nothing_is_what_the_relation_holds(home: SmallRelations) -> None:
    home.change("t", [(1, 10), (2, 20)])
    step = home.following.step(home.following.begin("T"))
    assert held(step) == [(1, 10), (2, 20)]
    assert isinstance(step, Reset)
    assert (step.position.epoch, step.columns.names) == (2, ["id", "n"])
    assert home.following.step(step.position) == Progress(step.position)


def test_changes_come_epoch_by_epoch_with_updates_paired_by_the_key(home: SmallRelations) -> None:
    home.define("other", "id")
    home.change("t", [(1, 10), (2, 20), (3, 30)])
    home.change("t", [(1, 11), (4, 40)], [(1, 10), (2, 20)])
    home.change("other", [(1,)])
    step = home.following.step(home.following.begin("t", 0))
    assert told(step) == [
        (3, [("insert", 1, 10), ("insert", 2, 20), ("insert", 3, 30)]),
        (4, [("update_preimage", 1, 10), ("update_postimage", 1, 11), ("delete", 2, 20), ("insert", 4, 40)]),
    ]
    assert isinstance(step, Changes)
    assert step.position.epoch == 5
    home.change("other", [(2,)])
    step = home.following.step(step.position)
    assert isinstance(step, Progress)
    assert step.position.epoch == 6


def test_until_is_never_passed_by_changes(home: SmallRelations) -> None:
    for i in range(5):
        home.change("t", [(i, i)])
    step = home.following.step(home.following.begin("t", 1), until=3)
    assert [epoch for epoch, _ in told(step)] == [2, 3]
    assert isinstance(step, Changes)
    assert home.following.step(step.position, until=3) == Progress(step.position)
    assert [epoch for epoch, _ in told(home.following.step(step.position))] == [4, 5, 6]


def test_a_step_ends_with_the_epoch_that_makes_it_large(home: SmallRelations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "ROWS", 4)
    monkeypatch.setattr(following, "EPOCHS", 3)
    for i in range(0, 21, 3):
        home.change("t", [(i, i), (i + 1, i), (i + 2, i)])
    position, sizes = home.following.begin("t", 1), list[int]()
    while isinstance(step := home.following.step(position), Changes):
        position = step.position
        sizes.append(len(step.epochs))
    assert sizes == [2, 2, 2, 1]
    assert position.epoch == home.epoch


def test_who_has_caught_up_is_told_of_a_drop(home: SmallRelations) -> None:
    home.change("t", [(1, 10)])
    position = home.following.begin("t", 2)
    assert home.following.step(position) == Progress(position)
    assert home.drop("t") == 3
    assert home.following.step(position) == Dropped("t", 3)
    assert home.following.step(home.following.begin("t", 1)) == Dropped("t", 3)
    with pytest.raises(RelationNameError, match="no table or view t"):
        home.following.begin("t", 3)
    with pytest.raises(RelationNameError, match="no table or view nowhere"):
        home.following.begin("nowhere")


def test_a_relation_replaced_by_one_of_other_columns_is_a_reset(home: SmallRelations) -> None:
    home.change("t", [(1, 10)])
    home.define("t", "n", key=(), rows=[(10,), (10,)])
    home.change("t", [(30,)])
    for epoch in (1, 2):
        step = home.following.step(home.following.begin("t", epoch))
        assert held(step) == [(10,), (10,), (30,)]
        assert isinstance(step, Reset)
        assert (step.position.epoch, step.columns.names) == (4, ["n"])
    assert told(home.following.step(home.following.begin("t", 3))) == [(4, [("insert", 30)])]
    # One who had nothing has nothing to throw away.
    assert [epoch for epoch, _ in told(home.following.step(home.following.begin("t", 0)))] == [3, 4]


def test_a_relation_dropped_and_made_again_is_a_reset_even_with_the_same_columns(home: SmallRelations) -> None:
    home.change("t", [(1, 10)])
    position = home.following.begin("t", 2)
    home.drop("t")
    home.define("t", "id", "n")
    assert held(home.following.step(position)) == []
    home.change("t", [(7, 70)])
    assert held(home.following.step(position)) == [(7, 70)]
    assert told(home.following.step(home.following.begin("t", 3))) == [(5, [("insert", 7, 70)])]


@pytest.mark.parametrize(
    ("ids", "columns", "rows"),
    [
        ([0, 1, 2], ("id", "n", "more"), [(1, 10, None)]),
        ([0, 1], ("id", "more"), [(1, 10)]),
        ([0], ("id",), [(1,)]),
        ([0, 2], ("id", "n"), [(1, None)]),
    ],
    ids=["added", "renamed", "dropped", "dropped and added again"],
)
def test_other_columns_are_a_reset(home: SmallRelations, ids: list[int], columns: tuple[str, ...], rows: Any) -> None:
    home.change("t", [(1, 10)])
    position = home.following.begin("t", 2)
    home.alter("t", ids, *columns, rows=rows)
    step = home.following.step(position)
    assert held(step) == rows
    assert isinstance(step, Reset)
    assert tuple(step.columns.names) == columns
    # The whole log, asked for from before it began, is read under the present columns.
    assert [(kind, *values) for _, ((kind, *values),) in told(home.following.step(home.following.begin("t", 0)))] == [
        ("insert", *rows[0])
    ]


def test_columns_that_are_again_what_they_were_are_no_reset(home: SmallRelations) -> None:
    home.change("t", [(1, 10)])
    home.alter("t", [0, 1], "id", "more", rows=[(1, 10)])
    home.change("t", [(2, 20)])
    home.alter("t", [0, 1], "id", "n", rows=[(1, 10), (2, 20)])
    assert told(home.following.step(home.following.begin("t", 2))) == [(4, [("insert", 2, 20)])]


def test_positions_are_gone_on_from_after_a_restart(home: SmallRelations, tmp_path: Path) -> None:
    home.change("t", [(1, 10)])
    home.change("t", [(2, 20)])
    home.define("v", "n", key=(), rows=[(1,)])
    home.define("v", "name", key=(), rows=[("x",)])
    home.drop("t")
    again = SmallRelations(tmp_path / "home")
    assert again.following.step(again.following.begin("t", 2)) == Dropped("t", 6)
    assert held(again.following.step(again.following.begin("v", 4))) == [("x",)]
    assert told(again.following.step(again.following.begin("v", 3))) == [(5, [("insert", "x")])]
    assert again.following.step(again.following.begin("v", 5)) == Progress(
        Position("v", 6, again.history.at("v", 6)),
    )


def test_an_epoch_that_expired_or_is_to_come_is_refused(home: SmallRelations, monkeypatch: pytest.MonkeyPatch) -> None:
    home.change("t", [(1, 10)])
    position = home.following.begin("t", 1)
    with pytest.raises(EpochExpired, match="epoch 3 has not been yet"):
        home.following.begin("t", 3)
    monkeypatch.setitem(home.ledger._folder.numbers, "headrace-oldest", 2)
    with pytest.raises(EpochExpired, match="epoch 1 has expired"):
        home.following.begin("t", 1)
    with pytest.raises(EpochExpired, match="epoch 1 has expired"):
        home.following.step(position)


def test_an_epoch_that_expires_while_it_is_read_is_refused(
    home: SmallRelations, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.change("t", [(1, 10)])
    position = home.following.begin("t", 1)

    def expire(*_: Any) -> Any:
        home.ledger._folder.numbers["headrace-oldest"] = 2
        return iter(())

    monkeypatch.setattr(home.ledger, "entries", expire)
    with pytest.raises(EpochExpired, match="epoch 1 has expired"):
        home.following.step(position)


def test_one_who_keeps_up_never_makes_the_ledger_be_read(home: SmallRelations, reads: list[tuple[str, int]]) -> None:
    step = home.following.step(home.following.begin("t", 1))
    for i in range(300):
        home.change("t", [(i, i)])
        step = home.following.step(step.position)  # pyright: ignore[reportAttributeAccessIssue]
        assert told(step) == [(i + 2, [("insert", i, i)])]
    assert reads == []
    assert [epoch for epoch, _ in told(home.following.step(home.following.begin("t", 1)))] == list(range(2, 102))
    assert reads == [("t", 1)]


def test_what_is_recent_and_what_is_read_are_the_same(home: SmallRelations, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(7)
    present: dict[int, int] = {}
    position = home.following.begin("t", 1)
    live: list[Any] = []
    for _ in range(40):
        ids = random_.sample(range(20), 5)
        deletes = [(i, present.pop(i)) for i in ids if i in present]
        inserts = [(i, random_.randrange(9)) for i in random_.sample(ids, 3)]
        changed = home.change(
            "t", [one for one in inserts if one not in deletes], [one for one in deletes if one not in inserts]
        )
        present.update(inserts)
        step = home.following.step(position)
        assert changed == home.epoch
        live.extend(told(step) if isinstance(step, Changes) else [])
        position = step.position  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(home.following._recent, "between", lambda *_: None)
    assert told(home.following.step(home.following.begin("t", 1))) == live


def test_the_first_change_after_an_epoch_is_found_in_memory_or_in_the_ledger(home: SmallRelations) -> None:
    home.define("u", "id", "n")
    follow, began = home.following, home.epoch
    follow.step(follow.begin("t", began))
    moments: dict[str, list[int]] = {"t": [], "u": []}
    for number in (1, 2):
        for name in ("u", "t"):
            moments[name].append(home.change(name, [(number, number)]))
    first, second = moments["t"]
    assert follow.first_change("t", began, reads=False) == moment(first)
    assert follow.first_change("t", first, reads=False) == moment(second)
    assert follow.first_change("t", second) is None
    # Nobody follows it, so that its changes are not in memory.
    assert follow.first_change("u", began, reads=False) is None
    assert follow.first_change("u", began) == moment(moments["u"][0])


def test_large_epochs_are_not_kept(home: SmallRelations, reads: list[tuple[str, int]]) -> None:
    home.following._recent._room = 2_000
    step = home.following.step(home.following.begin("t", 1))
    home.change("t", [(i, i) for i in range(500)])
    step = home.following.step(step.position)  # pyright: ignore[reportAttributeAccessIssue]
    assert [len(rows) for _, rows in told(step)] == [500]
    assert reads == [("t", 1)]
    home.change("t", [(1000, 1)])
    assert told(home.following.step(step.position)) == [(3, [("insert", 1000, 1)])]
    assert reads == [("t", 1)]


def test_who_waits_is_woken_by_the_commit_and_by_the_end(home: SmallRelations) -> None:
    follow = home.following
    assert follow.wait(0, 0)
    assert not follow.wait(1, 0.01)
    heard: list[bool] = []
    calls: list[int] = []
    forget = follow.listen(lambda: calls.append(home.epoch))

    def fail() -> None:
        raise RuntimeError("gone")

    follow.listen(fail)
    waiting = threading.Thread(target=lambda: heard.append(follow.wait(1, 600)))
    waiting.start()
    time.sleep(0.05)
    assert not heard
    home.change("t", [(1, 10)])
    waiting.join(90)
    assert heard == [True]
    assert calls == [2]
    forget()
    ending = threading.Thread(target=lambda: heard.append(follow.wait(2, 600)))
    ending.start()
    follow.end()
    ending.join(90)
    assert heard[1:] == [False]
    assert calls == [2]


def test_a_row_that_is_there_very_often_is_not_told_change_by_change(home: SmallRelations) -> None:
    """One weight stands for fifty million rows: a follower gets them piece by piece, and nobody builds them at once."""
    home.define("u", "n", key=())
    home.change("u", [(1,), (2,)])
    follow = home.following

    def tell(weight: int) -> Any:
        before = follow.begin("u", home.epoch)
        often = delta_of(home.tables["u"], [(7,), (8,)])
        often.weights[0] = weight
        home._commit({}, {"u": often})
        return follow.step(before)

    def tell_often() -> Reset:
        step = tell(50_000_000)
        assert isinstance(step, Reset)
        assert step.position.epoch == home.epoch
        assert step.content.piece(BEGIN, 1000).rows.num_rows == 1000
        with pytest.raises(ResultTooLarge, match=f"epoch {home.epoch} of u") as refused:
            changes_table(home.ledger, home.history, home.tables["u"], home.epoch - 1, home.epoch, home.epoch)
        assert "VERSION AS OF" in refused.value.hint
        return step

    assert cost_of(tell_often) < 50 * cost_of(lambda: tell(1))
    step = tell_often()
    home.change("u", [(3,)])
    assert told(follow.step(step.position)) == [(home.epoch, [("insert", 3)])]
    assert (
        changes_table(home.ledger, home.history, home.tables["u"], home.epoch - 1, home.epoch, home.epoch).num_rows == 1
    )


def test_changes_are_not_told_across_a_replacement(home: SmallRelations) -> None:
    home.change("t", [(1, 10)])
    home.define("t", "n", key=(), rows=[(10,)])
    home.change("t", [(30,)])

    def changes(since: int) -> list[Any]:
        table = changes_table(home.ledger, home.history, home.tables["t"], since, home.epoch, home.epoch)
        return table.select(["n", "_change_type", "_commit_version"]).to_pylist()

    for since in (1, 2):
        with pytest.raises(EpochExpired, match="t was replaced at epoch 3") as error:
            changes(since)
        assert "VERSION AS OF 3" in error.value.hint
    after = {"n": 30, "_change_type": "insert", "_commit_version": 4}
    assert changes(3) == [after]
    assert changes(4) == []
    with pytest.raises(EpochExpired, match="epoch 5 has not been yet"):
        changes(5)
    assert changes(0) == [{"n": 10, "_change_type": "insert", "_commit_version": 3}, after]
