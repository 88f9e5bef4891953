"""A script that fails on its way tells which of its statements are carried out, in which epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.epoch.work import Work
from headrace.errors import ChangesRejected, HomeBroken, SparkLost
from headrace.sql.statements import Insert
from headrace.statements import run as statements
from headrace.statements.run import run_script
from tests.small_engine import Host, table


class Home:
    """A table in memory; what a statement comes to is given by its number."""

    def __init__(self) -> None:
        self.host = Host(table("t"))
        self.loop = Loop(self.host)
        self.core = self.host
        self.audit = None
        self.raises: dict[int, BaseException] = {}
        self.ran: list[int] = []

    @property
    def epoch(self) -> int:
        return self.host.epoch

    @property
    def catalog(self) -> Any:
        return self.host.catalog

    def relations(self) -> dict[str, Any]:
        return {}

    def change(self, work_out: Callable[[], Call]) -> Any:
        return self.loop.submit_worked_out(work_out)

    def define(self, make: Callable[[], Any]) -> Any:
        return make()

    def work_out(self, _: Any, statement: Insert) -> Call:
        self.ran.append(statement.line)
        if statement.line in self.raises:
            raise self.raises[statement.line]
        return Call({"t": [{"insert": {"id": statement.line, "n": 0}}]})

    def create(self, _: Any, statement: Any) -> None:
        self.ran.append(statement.line)
        if statement.line in self.raises:
            raise self.raises[statement.line]
        if not statement.if_not_exists:
            self.host.commit(Work({}, 1000), self.host.tick(), {})


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Home()
    monkeypatch.setattr(statements, "work_out", made.work_out)
    monkeypatch.setattr(statements, "create_table", made.create)
    return made


def inserts(count: int) -> str:
    """So many statements, each on its line."""
    return "\n".join(f"INSERT INTO t VALUES ({number}, 0);" for number in range(1, count + 1))


def test_the_first_to_fail_tells_what_came_before_it(home: Any) -> None:
    home.raises = {3: ChangesRejected((), hint="mend them")}
    with pytest.raises(ChangesRejected) as told:
        run_script(home, inserts(4))
    assert home.ran == [1, 2, 3]
    assert told.value.detail.endswith(
        "Of 4 statements, 1 (epoch 1) and 2 (epoch 2) are carried out; this is about 3, and no other was run."
    )
    assert told.value.hint == "mend them; then run what is left of the script"
    assert home.host.holds("t") == {(1, 0), (2, 0)}


def test_a_script_that_is_carried_out_in_part_is_not_to_be_sent_again(home: Any) -> None:
    home.raises = {2: SparkLost("Spark ended while it worked", detail="Nothing of this was committed.", hint="again")}
    with pytest.raises(SparkLost) as told:
        run_script(home, inserts(2))
    assert not told.value.transient
    assert "1 (epoch 1) is carried out; this is about 2" in told.value.detail
    assert told.value.hint == "run what is left of the script"


def test_nothing_is_added_where_nothing_was_changed_before(home: Any) -> None:
    home.raises = {1: SparkLost("Spark ended", detail="Nothing was done.", hint="again"), 2: SparkLost("no", hint="a")}
    for sql in (inserts(1), inserts(2), "SHOW TABLES;\n" + inserts(2).splitlines()[1]):
        with pytest.raises(SparkLost) as told:
            run_script(home, sql)
        assert told.value.transient
        assert "carried out" not in told.value.detail


def test_definitions_count_with_the_epochs_that_they_make(home: Any) -> None:
    home.raises = {3: ChangesRejected(())}
    script = "CREATE TABLE u (id INT);\nCREATE TABLE IF NOT EXISTS u (id INT);\n" + inserts(3).splitlines()[2]
    with pytest.raises(ChangesRejected, match=r"1 \(epoch 1\) and 2 are carried out; this is about 3"):
        run_script(home, script)


def test_an_interrupt_and_what_nobody_foresaw_have_it_as_a_note(home: Any) -> None:
    home.raises = {2: KeyboardInterrupt(), 3: ZeroDivisionError()}
    for number, kind in ((2, KeyboardInterrupt), (3, ZeroDivisionError)):
        with pytest.raises(kind) as told:
            run_script(home, "INSERT INTO t VALUES (1, 0);" + "\n" * (number - 1) + "INSERT INTO t VALUES (2, 0)")
        assert any("is carried out; this is about 2, and no other was run" in note for note in told.value.__notes__)


def test_a_broken_home_says_itself_what_became_of_its_statement(home: Any) -> None:
    home.raises = {2: HomeBroken(2, RuntimeError("x"), included=True)}
    with pytest.raises(HomeBroken) as told:
        run_script(home, inserts(3))
    assert "This call is part of epoch 2, once. Of 3 statements, 1 (epoch 1) is carried out; " in told.value.detail
    assert "this is about 2, and no other was run" in told.value.detail


def test_of_many_the_last_are_named(home: Any) -> None:
    home.raises = {30: ChangesRejected(())}
    with pytest.raises(ChangesRejected) as told:
        run_script(home, inserts(30))
    assert "Of 30 statements, the first 21, 22 (epoch 22), " in told.value.detail
    assert "28 (epoch 28) and 29 (epoch 29) are carried out; this is about 30" in told.value.detail
