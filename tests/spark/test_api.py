"""The public Python API: epochs, receipts, keys, definitions, feeds, reopening and shared epochs."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.epoch.core import Core
from headrace.errors import ChangesRejected, HeadraceError, ReadOnly
from headrace.face import home_of
from tests.changes import delete, insert, rows
from tests.waiting import until

SETUP = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT);
CREATE TABLE bag (a INT, s STRING);
CREATE VIEW total AS SELECT g, SUM(v) AS s FROM t GROUP BY g;
CREATE VIEW big AS SELECT g FROM total WHERE s > 10;
"""


@pytest.fixture
def shop(home: Any) -> Any:
    home.execute(SETUP)
    return home


def feed(hr: Any, name: str, **options: Any) -> list[tuple[str, tuple[Any, ...]]]:
    """The changes as (kind, values), sorted within what one call returns."""
    found = [
        (row["_change_type"], tuple(value for column, value in row.items() if column[0] != "_"))
        for row in hr.changes(name, **options).to_pylist()
    ]
    return sorted(found, key=repr)


def summed(hr: Any, name: str) -> list[tuple[Any, ...]]:
    """All changes from the start, added up."""
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    total: Counter[tuple[Any, ...]] = Counter()
    for kind, values in feed(hr, name):
        total[values] += signs[kind]
    assert all(count >= 0 for count in total.values())
    return sorted(total.elements(), key=repr)


def test_one_call_is_one_epoch_over_all_tables(shop: Any) -> None:
    before = shop.epoch
    receipt = shop.apply({"t": [insert(id=1, g="a", v=20), insert(id=2, g="a", v=1)], "bag": [insert(a=1, s=None)]})
    assert receipt.epoch == shop.epoch == before + 1
    assert receipt.applied == {"t": 2, "bag": 1}
    assert not any(receipt.stale.values())
    assert not any(receipt.dead.values())
    assert receipt.seconds > 0
    assert receipt.stages
    assert all(seconds >= 0 for seconds in receipt.stages.values())
    assert rows(shop, "SELECT * FROM total") == [("a", 21)]
    assert rows(shop, "SELECT * FROM big") == [("a",)]


def test_a_key_is_applied_once(shop: Any) -> None:
    first = shop.apply({"bag": [insert(a=1, s="x")]}, key="once")
    assert shop.apply({"bag": [insert(a=1, s="x")]}, key="once") == first
    assert shop.apply({"BAG": [{"insert": {"s": "x", "a": 1}}]}, key="once") == first
    with pytest.raises(headrace.KeyReused, match="another request"):
        shop.apply({"bag": [insert(a=2, s="y")]}, key="once")
    assert rows(shop, "SELECT * FROM bag") == [(1, "x")]
    assert shop.epoch == first.epoch


def test_a_rejected_call_does_not_use_up_its_key(shop: Any) -> None:
    with pytest.raises(ChangesRejected):
        shop.apply({"bag": [insert(a="one", s="x")]}, key="again")
    shop.apply({"bag": [insert(a=1, s="x")]}, key="again")
    assert rows(shop, "SELECT * FROM bag") == [(1, "x")]


def test_a_call_without_net_change_still_commits_its_key(shop: Any, spark: Any, tmp_path: Path) -> None:
    first = shop.apply({"t": [delete(id=99)]}, key="nothing")
    shop.close()
    with headrace.open(str(tmp_path / "home"), spark=spark) as again:
        assert again.apply({"t": [delete(id=99)]}, key="nothing").epoch == first.epoch
        with pytest.raises(headrace.KeyReused):
            again.apply({"t": [insert(id=1, g="a", v=1)]}, key="nothing")
        assert rows(again, "SELECT * FROM t") == []


def test_keys_replace_and_net_out(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1), insert(id=2, g="b", v=2)]})
    before = shop.epoch
    shop.apply({"t": [insert(id=1, g="b", v=5), delete(id=3), insert(id=4, g="c", v=1), delete(id=4)]})
    assert rows(shop, "SELECT * FROM total") == [("b", 7)]
    assert feed(shop, "t", since=before) == [
        ("update_postimage", (1, "b", 5)),
        ("update_preimage", (1, "a", 1)),
    ]


def test_a_delete_by_key_ignores_a_stale_image(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1)]})
    shop.apply({"t": [delete(id=1, g="other", v=77)]})
    assert rows(shop, "SELECT * FROM t") == []
    assert rows(shop, "SELECT * FROM total") == []


def test_an_update_changes_what_it_names_and_views_follow(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=5), insert(id=2, g="b", v=7)]})
    shop.apply(
        {"t": [{"update": {"id": 1, "v": 6}}, {"update": {"id": 1, "g": "b"}}, {"update": {"ID": 2, "v": None}}]}
    )
    assert shop.query("SELECT * FROM t ORDER BY id").to_pylist() == [
        {"id": 1, "g": "b", "v": 6},
        {"id": 2, "g": "b", "v": None},
    ]
    assert shop.query("SELECT * FROM total").to_pylist() == [{"g": "b", "s": 6}]
    with pytest.raises(ChangesRejected, match="no row of this key"):
        shop.apply({"t": [insert(id=4, g="c", v=1), {"update": {"id": 3, "v": 1}}]})
    assert shop.verify().ok


def test_copies_count_without_a_key(shop: Any) -> None:
    shop.apply({"bag": [insert(a=1, s="x")] * 3})
    shop.apply({"bag": [delete(a=1, s="x")] * 2})
    assert rows(shop, "SELECT * FROM bag") == [(1, "x")]
    assert summed(shop, "bag") == [(1, "x")]


def test_feeds_are_paired_bounded_and_sum_to_the_state(shop: Any) -> None:
    one = shop.apply({"t": [insert(id=1, g="a", v=1)]}).epoch
    two = shop.apply({"t": [insert(id=1, g="a", v=9)]}).epoch
    three = shop.apply({"t": [delete(id=1)]}).epoch
    assert feed(shop, "total", since=one, until=two) == [
        ("update_postimage", ("a", 9)),
        ("update_preimage", ("a", 1)),
    ]
    assert feed(shop, "total", since=two) == [("delete", ("a", 9))]
    assert feed(shop, "total", since=three) == []
    assert summed(shop, "total") == []
    table = shop.changes("total")
    assert table.column_names == ["g", "s", "_change_type", "_commit_version", "_commit_timestamp"]
    assert table.column("_commit_version").to_pylist() == sorted(table.column("_commit_version").to_pylist())


def test_every_epoch_can_be_read_again(shop: Any) -> None:
    one = shop.apply({"t": [insert(id=1, g="a", v=1)]}).epoch
    shop.apply({"t": [insert(id=1, g="b", v=2)]})
    assert rows(shop, "SELECT * FROM total", epoch=one) == [("a", 1)]
    assert shop.execute(f"SELECT g FROM total VERSION AS OF {one}").to_pylist() == [{"g": "a"}]
    assert rows(shop, "SELECT * FROM total") == [("b", 2)]


def test_a_view_over_existing_rows_is_filled_and_then_kept(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1)]})
    shop.execute("CREATE VIEW doubled AS SELECT id, v * 2 AS w FROM t")
    shop.apply({"t": [insert(id=2, g="a", v=2)]})
    assert rows(shop, "SELECT * FROM doubled") == summed(shop, "doubled") == [(1, 2), (2, 4)]


def test_a_replacement_emits_the_difference_and_rebuilds_what_depends_on_it(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=20), insert(id=2, g="b", v=5)]})
    before = shop.epoch
    untouched = shop.changes("t").num_rows
    shop.execute("CREATE OR REPLACE VIEW total AS SELECT g, SUM(v) * IF(g = 'b', 3, 1) AS s FROM t GROUP BY g")
    kinds = Counter(kind for kind, _ in feed(shop, "total", since=before))
    assert kinds in (Counter(update_preimage=1, update_postimage=1), Counter(delete=1, insert=1))
    assert rows(shop, "SELECT * FROM big") == summed(shop, "big") == [("a",), ("b",)]
    assert summed(shop, "total") == rows(shop, "SELECT * FROM total") == [("a", 20), ("b", 15)]
    assert shop.changes("t").num_rows == untouched
    shop.apply({"t": [delete(id=2)]})
    assert rows(shop, "SELECT * FROM big") == [("a",)]


def test_a_drop_of_something_in_use_names_its_users(shop: Any) -> None:
    with pytest.raises(HeadraceError, match="big"):
        shop.execute("DROP VIEW total")
    shop.execute("DROP VIEW big; DROP VIEW total; DROP TABLE t")
    with pytest.raises(HeadraceError):
        shop.query("SELECT * FROM t")
    shop.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    assert rows(shop, "SELECT * FROM t") == []


def test_a_home_goes_on_after_closing(shop: Any, spark: Any, tmp_path: Path) -> None:
    first = shop.apply({"t": [insert(id=1, g="a", v=20)], "bag": [insert(a=1, s="x")]}, key="first")
    shop.close()
    with headrace.open(str(tmp_path / "home"), spark=spark) as again:
        assert again.epoch == first.epoch
        assert rows(again, "SELECT * FROM big") == [("a",)]
        same = {"t": [insert(id=1, g="a", v=20)], "bag": [insert(a=1, s="x")]}
        assert again.apply(same, key="first").epoch == first.epoch
        again.apply({"t": [insert(id=1, g="b", v=11), insert(id=2, g="a", v=1)]})
        assert rows(again, "SELECT * FROM total") == summed(again, "total") == [("a", 1), ("b", 11)]
        assert again.verify().ok


def test_a_read_only_opening_writes_nothing(shop: Any, spark: Any, tmp_path: Path) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=20)]})
    shop.close()
    with headrace.open(str(tmp_path / "home"), spark=spark, read_only=True) as reader:
        assert rows(reader, "SELECT * FROM total") == [("a", 20)]
        with pytest.raises(ReadOnly):
            reader.apply({"t": [insert(id=2, g="a", v=1)]})
        with pytest.raises(ReadOnly):
            reader.execute("CREATE VIEW x AS SELECT * FROM t")


def test_insert_update_and_delete_statements(shop: Any) -> None:
    receipt = shop.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, NULL)")
    assert receipt.applied == {"t": 3}
    shop.execute("INSERT INTO t (id, v) VALUES (4, 4)")
    shop.execute("UPDATE t SET v = v + 10, g = coalesce(g, 'none') WHERE id >= 2")
    assert rows(shop, "SELECT * FROM t") == [(1, "a", 1), (2, "b", 12), (3, "none", None), (4, "none", 14)]
    assert rows(shop, "SELECT * FROM big") == [("b",), ("none",)]
    shop.execute("INSERT INTO bag SELECT v, g FROM t WHERE v IS NOT NULL UNION ALL SELECT 1, 'a'")
    assert rows(shop, "SELECT * FROM bag") == [(1, "a"), (1, "a"), (12, "b"), (14, "none")]
    shop.execute("UPDATE bag SET s = 'z' WHERE a = 1")
    shop.execute("DELETE FROM bag WHERE a > 12")
    assert rows(shop, "SELECT * FROM bag") == summed(shop, "bag") == [(1, "z"), (1, "z"), (12, "b")]
    shop.execute("DELETE FROM t")
    assert rows(shop, "SELECT * FROM total") == []


def test_an_update_may_move_keys(shop: Any) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    shop.execute("UPDATE t SET id = id + 1")
    assert rows(shop, "SELECT * FROM t") == [(2, "a", 1), (3, "b", 2)]


def test_a_statement_reads_the_state_before_it(shop: Any) -> None:
    shop.execute("INSERT INTO bag VALUES (1, 'a')")
    shop.execute("INSERT INTO bag SELECT a + 1, s FROM bag")
    assert rows(shop, "SELECT * FROM bag") == [(1, "a"), (2, "a")]


def test_calls_that_arrive_together_share_epochs(shop: Any) -> None:
    before = shop.epoch
    gate = threading.Barrier(12)

    def send(number: int) -> Any:
        gate.wait()
        return shop.apply({"t": [insert(id=number, g="a", v=1)]}, key=f"call-{number}")

    with ThreadPoolExecutor(12) as pool:
        receipts = list(pool.map(send, range(12)))
    assert rows(shop, "SELECT * FROM total") == [("a", 12)]
    assert all(receipt.applied == {"t": 1} for receipt in receipts)
    assert max(receipt.epoch for receipt in receipts) == shop.epoch
    assert shop.epoch - before < 12


def test_a_bad_call_among_others_is_rejected_alone(shop: Any) -> None:
    shop.execute("CREATE VIEW shares AS SELECT id, 100 / v AS share FROM t")
    gate = threading.Barrier(9)
    changes = [{"t": [insert(id=number, g="a", v=1)]} for number in range(6)]
    changes += [{"t": [insert(id=50, g="a", v="x")]}, {"bag": [delete(a=1, s="absent")]}]
    changes += [{"t": [insert(id=60, g="a", v=0)]}]

    def send(number: int) -> str:
        gate.wait()
        try:
            shop.apply(changes[number], key=f"call-{number}")
        except HeadraceError as error:
            return error.code
        return "applied"

    with ThreadPoolExecutor(9) as pool:
        verdicts = list(pool.map(send, range(9)))
    assert verdicts == ["applied"] * 6 + ["changes_rejected"] * 2 + ["view_evaluation_error"]
    assert rows(shop, "SELECT * FROM total") == [("a", 6)]
    assert len(rows(shop, "SELECT * FROM shares")) == 6


def test_one_key_sent_from_many_threads_is_applied_once(shop: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: shop.apply({"bag": [insert(a=1, s="x")]}, key="same"), range(8)))
    assert rows(shop, "SELECT * FROM bag") == [(1, "x")]
    assert len({receipt.epoch for receipt in receipts}) == 1


def test_statements_of_a_shared_epoch_build_on_each_other(shop: Any) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'a', 0)")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: shop.execute("UPDATE t SET v = v + 1"), range(6)))
    assert rows(shop, "SELECT v FROM t") == [(6,)]


def test_sequences_decide_what_is_stale(home: Any) -> None:
    home.execute("CREATE TABLE s (id INT PRIMARY KEY, v STRING, at INT) SEQUENCE BY at")
    home.apply({"s": [insert(id=1, v="new", at=5)]})
    receipt = home.apply({"s": [insert(id=1, v="old", at=4)]})
    assert receipt.stale == {"s": 1}
    home.apply({"s": [insert(id=1, v="same", at=5)]})
    assert rows(home, "SELECT v FROM s") == [("same",)]
    home.apply({"s": [delete(id=2, at=9), delete(id=1, at=8)]})
    assert home.apply({"s": [insert(id=2, v="late", at=7), insert(id=1, v="late", at=8)]}).stale == {"s": 1}
    assert rows(home, "SELECT id, v FROM s") == [(1, "late")]
    for bad in (insert(id=3, v="x", at=None), insert(id=3, v="x"), delete(id=3)):
        with pytest.raises(ChangesRejected, match="at"):
            home.apply({"s": [bad]})


def test_json_forms_become_the_columns_types(home: Any) -> None:
    home.execute(
        "CREATE TABLE j (id INT PRIMARY KEY, d DECIMAL(10,2), ts TIMESTAMP, day DATE, f DOUBLE, raw BINARY, "
        "p STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, DECIMAL(4,1)>)"
    )
    point = {"x": 1, "y": ["a", None]}
    stamp = datetime(2025, 11, 2, 5, 30, tzinfo=UTC)
    python = insert(id=1, d=Decimal("1.50"), ts=stamp, day=stamp.date(), f=1.0, p=point, m={"k": Decimal("2.5")})
    json = insert(id=2, d="1.5", ts="2025-11-02T00:30:00-05:00", day="2025-11-02", f=1, p=point, m={"k": 2.5})
    bare = insert(id=3, d=1.5, ts="2025-11-02 05:30:00", day="2025-11-02", f=1.0, p=point, m={"k": "2.5"})
    home.apply({"j": [python, json, bare]})
    seen = [tuple(row.values()) for row in home.query("SELECT d, ts, day, f, p, m FROM j").to_pylist()]
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == Decimal("1.50")
    assert seen[0][1] == stamp


def test_names_are_case_insensitive_and_scripts_answer_with_the_last(shop: Any) -> None:
    shop.apply({"T": [{"insert": {"ID": 1, "G": "a", "v": 3}}]})
    answer = shop.execute("INSERT INTO bag VALUES (1, 'x'); SELECT S FROM TOTAL")
    assert answer.column_names[0].lower() == "s"
    assert rows(shop, "SELECT * FROM Total") == [("a", 3)]
    assert shop.execute("CREATE VIEW IF NOT EXISTS Total AS SELECT 1 AS one") is None
    assert rows(shop, "SELECT * FROM total") == [("a", 3)]


def test_definitions_are_shown(shop: Any) -> None:
    assert {"t", "bag"} <= {str(value) for row in shop.execute("SHOW TABLES").to_pylist() for value in row.values()}
    assert {"total", "big"} <= {str(v) for row in shop.execute("SHOW VIEWS").to_pylist() for v in row.values()}
    assert "bigint" in str(shop.execute("DESCRIBE t").to_pylist()).lower()
    plan = shop.explain("big")
    assert plan.incremental
    assert str(plan)
    assert shop.execute("EXPLAIN big").num_rows > 0
    before = shop.epoch
    assert shop.execute("EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT g FROM t").num_rows > 0
    assert shop.epoch == before


def test_a_policy_refuses_what_it_cannot_keep(shop: Any) -> None:
    body = "SELECT g, SUM(v) AS s FROM t GROUP BY g"
    shop.execute(f"CREATE MATERIALIZED VIEW kept REFRESH POLICY INCREMENTAL AS {body}")
    shop.execute(f"CREATE MATERIALIZED VIEW whole REFRESH POLICY FULL AS {body}")
    shop.apply({"t": [insert(id=1, g="a", v=3)]})
    assert rows(shop, "SELECT * FROM kept") == rows(shop, "SELECT * FROM whole") == [("a", 3)]
    assert not shop.explain("whole").incremental


def test_verify_recomputes(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=20)], "bag": [insert(a=1, s="x")]})
    report = shop.verify()
    assert report.ok
    assert not report.differences
    assert shop.verify("total").ok


def test_now_follows_the_clock_of_the_epoch(shop: Any) -> None:
    shop.execute("CREATE VIEW stamped AS SELECT id, current_date() AS day FROM t")
    shop.apply({"t": [insert(id=1, g="a", v=1)]})
    ((_, day),) = rows(shop, "SELECT * FROM stamped")
    assert abs((datetime.now(UTC).date() - day).days) <= 1


def test_a_definition_moves_the_clock_for_all_who_read_it(home: Any) -> None:
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP); CREATE TABLE u (a INT)")
    home.execute("CREATE VIEW coming AS SELECT id FROM t WHERE at > now()")
    # While the turn is held, nothing else makes an epoch.
    with home_of(home).loop.turn:
        soon = datetime.now(UTC) + timedelta(seconds=3)
        home.apply({"t": [insert(id=1, at=soon)]})
        # The clock of epochs advances by whole seconds.
        until(lambda: datetime.now(UTC) > soon + timedelta(seconds=1))
        home.execute("CREATE VIEW other AS SELECT a FROM u")
        assert rows(home, "SELECT * FROM coming") == []
        assert home.verify().ok


def test_explaining_a_replacement_leaves_the_files_of_the_live_view(home: Any) -> None:
    home.execute("CREATE TABLE o (id INT PRIMARY KEY, g INT); CREATE VIEW v AS SELECT g + 1 AS h, id FROM o")
    home.apply({"o": [{"insert": {"id": 1, "g": 2}}]})
    folder = home_of(home).core.catalog.view("v").context.folder
    before = sorted(path.name for path in folder.iterdir())
    folders = sorted(folder.parent.iterdir())
    assert before
    home.execute("EXPLAIN CREATE OR REPLACE VIEW v AS SELECT g + 2 AS h, id FROM o")
    assert sorted(path.name for path in folder.iterdir()) == before
    assert sorted(folder.parent.iterdir()) == folders
    home.execute("CREATE OR REPLACE VIEW v AS SELECT g + 2 AS h, id FROM o")
    assert not folder.exists()
    home.execute("DROP VIEW v")
    assert len(list(folder.parent.iterdir())) < len(folders)


def test_a_definition_that_fails_is_seen_by_nobody(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home.execute("CREATE TABLE o (id INT PRIMARY KEY, g INT)")
    home.apply({"o": [{"insert": {"id": 1, "g": 0}}]})
    before, epoch = home_of(home).core.catalog, home.epoch
    seen: list[bool] = []
    real = Core.commit

    def look(self: Any, *given: Any) -> None:
        seen.append("w" in self.catalog)
        real(self, *given)

    monkeypatch.setattr(Core, "commit", look)
    with pytest.raises(headrace.HeadraceError):
        home.execute("CREATE VIEW w AS SELECT 1 DIV g AS x, raise_error('no') AS y FROM o")
    assert home_of(home).core.catalog is before
    assert home.epoch == epoch
    home.execute("CREATE VIEW w AS SELECT g FROM o")
    assert seen == [False]
    assert "w" in home_of(home).core.catalog
    assert "w" not in before
