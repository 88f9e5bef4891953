"""What is not a view's result: refusals, fallbacks, deletes, bad rows, repeated batches, two writers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import ChangesRejected, HeadraceError, HomeBusy, HomeClosed, OwnerLost, ReadOnly
from headrace.home_elsewhere import ask_home
from tests.changes import delete, insert, rows_of
from tests.thinned import thinned

TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT);
CREATE TABLE bag (a INT, s STRING);
CREATE VIEW total AS SELECT g, SUM(v) AS s FROM t GROUP BY g;
CREATE VIEW distinct_bag AS SELECT DISTINCT a, s FROM bag;
"""

ODD = [
    "SELECT id, SUM(v) OVER (ORDER BY id) AS rs FROM t",
    "SELECT g, percentile_approx(v, 0.5) AS p FROM t GROUP BY g",
    "SELECT g, approx_count_distinct(v) AS p FROM t GROUP BY g",
    "SELECT id FROM t WHERE v NOT IN (SELECT a FROM bag)",
    "SELECT g, kurtosis(v) AS k FROM t GROUP BY g",
    "SELECT * FROM (SELECT g, v FROM t) PIVOT (SUM(v) FOR g IN ('a' AS a, 'b' AS b))",
    "SELECT g, sort_array(collect_list(v)) AS vs FROM t GROUP BY g",
    "SELECT transform(array(v, 1), x -> x + 1) AS xs FROM t",
]


@pytest.fixture
def shop(home: Any) -> Any:
    home.execute(TABLES)
    return home


@pytest.mark.parametrize(
    "call", ["rand()", "randn()", "uuid()", "shuffle(array(1, 2))", "monotonically_increasing_id()"]
)
def test_a_nondeterministic_function_is_refused_by_name(shop: Any, call: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        shop.execute(f"CREATE VIEW x AS SELECT id, {call} AS x FROM t")
    assert call.split("(")[0] in str(caught.value)
    assert caught.value.hint


def test_the_clock_is_no_such_function(shop: Any) -> None:
    shop.execute("CREATE VIEW x AS SELECT id FROM t WHERE current_timestamp() > TIMESTAMP'2020-01-01 00:00:00'")
    shop.apply({"t": [insert(id=1, g="a", v=1)]})
    assert rows_of(shop, "x") == [(1,)]


@pytest.mark.parametrize("sql", thinned(ODD, 5))
def test_a_fallback_is_told_and_right(shop: Any, sql: str) -> None:
    shop.apply({"t": [insert(id=i, g="ab"[i % 2], v=i) for i in range(6)], "bag": [insert(a=2, s="x")]})
    shop.execute(f"CREATE VIEW odd AS {sql}")
    plan = shop.explain("odd")
    if not plan.incremental:
        assert plan.reasons
        with pytest.raises(HeadraceError):
            shop.execute(f"CREATE MATERIALIZED VIEW strict REFRESH POLICY INCREMENTAL AS {sql}")
    else:
        shop.execute(f"CREATE MATERIALIZED VIEW strict REFRESH POLICY INCREMENTAL AS {sql}")
    shop.apply({"t": [insert(id=2, g="b", v=None), delete(id=3)], "bag": [insert(a=None, s="y")]})
    report = shop.verify("odd")
    assert report.ok, report.differences
    shop.apply({"bag": [delete(a=None, s="y")]})
    report = shop.verify("odd")
    assert report.ok, report.differences


def test_a_delete_of_an_absent_row_of_a_bag_leaves_everything(shop: Any) -> None:
    shop.apply({"bag": [insert(a=1, s="x")]})
    epoch = shop.epoch
    with pytest.raises(ChangesRejected):
        shop.apply({"bag": [insert(a=2, s="y"), delete(a=1, s="other")]})
    assert rows_of(shop, "bag") == rows_of(shop, "distinct_bag") == [(1, "x")]
    assert shop.epoch == epoch


def test_an_insert_of_a_known_key_retracts_the_old_row_everywhere(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1)]})
    shop.apply({"t": [insert(id=1, g="b", v=2)]})
    assert rows_of(shop, "t") == [(1, "b", 2)]
    assert rows_of(shop, "total") == [("b", 2)]
    shop.apply({"t": [delete(id=1)]})
    assert rows_of(shop, "total") == []


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "v": "x"},
        {"id": 1, "v": 2**40},
        {"id": 1, "other": 1},
        {"v": 1},
        {"id": None},
        {"id": 1, "v": {"a": 1}},
    ],
)
def test_one_bad_row_rejects_its_whole_call(shop: Any, row: dict[str, Any]) -> None:
    with pytest.raises(ChangesRejected):
        shop.apply({"t": [insert(id=7, g="a", v=7), {"insert": row}], "bag": [insert(a=1, s="x")]})
    assert rows_of(shop, "t") == rows_of(shop, "bag") == []


def test_keys_in_any_order_with_gaps(shop: Any) -> None:
    for key in ("batch-3", "batch-1", "batch-9", "batch-3", "batch-1"):
        shop.apply({"bag": [insert(a=1, s=key)]}, key=key)
    assert [s for _, s in rows_of(shop, "bag")] == ["batch-1", "batch-3", "batch-9"]


def test_two_writers_cannot_own_one_home(shop: Any, spark: Any, tmp_path: Path) -> None:
    with pytest.raises(HomeBusy, match=f"process {os.getpid()} on"):
        headrace.open(str(tmp_path / "home"), spark=spark)
    shop.apply({"bag": [insert(a=1, s="x")]})
    assert rows_of(shop, "bag") == [(1, "x")]


def test_readers_open_beside_the_owner(shop: Any, spark: Any, tmp_path: Path) -> None:
    shop.apply({"bag": [insert(a=1, s="x")]})
    with headrace.open(str(tmp_path / "home"), spark=spark, read_only=True) as reader:
        shop.apply({"bag": [insert(a=2, s="y")]})
        assert rows_of(reader, "bag") == [(1, "x")]
        with pytest.raises(ReadOnly):
            reader.apply({"bag": [insert(a=3, s="z")]})
    assert rows_of(shop, "bag") == [(1, "x"), (2, "y")]


def test_who_was_replaced_commits_nothing(shop: Any, spark: Any, tmp_path: Path) -> None:
    shop.apply({"bag": [insert(a=1, s="x")]})
    epoch = shop.epoch
    # As if this process had been stopped beyond its timeout, and another had come and gone.
    (tmp_path / "home" / "owner.json").unlink()
    for _ in range(2):
        with pytest.raises(OwnerLost):
            shop.apply({"bag": [insert(a=2, s="y")]})
        with pytest.raises(OwnerLost):
            shop.execute("CREATE TABLE other (a INT)")
    assert shop.epoch == epoch
    with headrace.open(str(tmp_path / "home"), spark=spark) as next_owner:
        shop.close()
        next_owner.apply({"bag": [insert(a=3, s="z")]})
        assert rows_of(next_owner, "bag") == [(1, "x"), (3, "z")]
        assert next_owner.epoch == epoch + 1


def test_a_closed_home_commits_nothing(shop: Any) -> None:
    shop.close()
    with pytest.raises(HomeClosed):
        shop.apply({"bag": [insert(a=1, s="x")]})


def test_others_ask_the_owner(shop: Any, tmp_path: Path) -> None:
    shop.apply({"bag": [insert(a=1, s="x")]})
    status = ask_home(tmp_path / "home", "status", {})
    assert status is not None
    assert (status["epoch"], status["pid"]) == (shop.epoch, os.getpid())
    assert set(status["tables"]) == {"t", "bag"}
    shop.close()
    assert ask_home(tmp_path / "home", "status", {}) is None


def test_a_home_that_cannot_be_opened_is_left_free(shop: Any, spark: Any, tmp_path: Path) -> None:
    shop.close()
    log = tmp_path / "home" / "ledger" / "_delta_log"
    log.rename(tmp_path / "aside")
    log.write_text("")
    with pytest.raises(HeadraceError):
        headrace.open(str(tmp_path / "home"), spark=spark)
    log.unlink()
    (tmp_path / "aside").rename(log)
    headrace.open(str(tmp_path / "home"), spark=spark).close()


def test_types_that_no_relation_carries_may_be_used_inside_a_query(home: Any) -> None:
    home.execute("""
        CREATE TABLE notes (id INT PRIMARY KEY, body STRING, day DATE, months INT);
        CREATE VIEW prices AS SELECT id, variant_get(parse_json(body), '$.price', 'decimal(9,2)') AS price FROM notes;
        CREATE VIEW kinds AS
            SELECT variant_get(v, '$.kind', 'string') AS kind, count(*) AS n, max(day + gap) AS latest
            FROM (SELECT parse_json(body) AS v, day, make_ym_interval(0, months) AS gap FROM notes)
            GROUP BY variant_get(v, '$.kind', 'string');
        CREATE VIEW newest AS
            SELECT id, kind FROM (
                SELECT id, variant_get(v, '$.kind', 'string') AS kind,
                    row_number() OVER (ORDER BY day + gap DESC, id) AS r
                FROM (SELECT id, day, parse_json(body) AS v, make_ym_interval(0, months) AS gap FROM notes)
            ) WHERE r <= 2;
    """)
    rows_in = [
        insert(id=i, body=f'{{"price": {i}.5, "kind": "k{i % 3}"}}', day=f"2024-0{i}-01", months=9 - i)
        for i in range(1, 9)
    ]
    home.apply({"notes": rows_in[:5]})
    assert home.verify().ok
    home.apply({"notes": [*rows_in[5:], delete(id=2)]})
    home.apply({"notes": [insert(id=1, body='{"kind": "k2"}', day="2025-01-01", months=0)]})
    assert home.verify().ok
    assert ("k2", 3, "2025-01-01") in [(kind, n, str(latest)) for kind, n, latest in rows_of(home, "kinds")]
