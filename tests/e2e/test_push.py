"""`headrace push` against a real server."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.cli.main import run
from tests.e2e.conftest import emptied, running
from tests.relation_rows import rows_of

BRONZE = Path(__file__).parents[2] / "examples" / "medallion" / "sql" / "1_bronze.sql"
AT = "2025-11-30T00:03:32.477000Z"


@pytest.fixture(scope="module")
def hr(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[headrace.Headrace]:
    with headrace.open(tmp_path_factory.mktemp("push") / "home", spark=spark) as home:
        home.execute(BRONZE.read_text())
        home.execute("CREATE VIEW statuses AS SELECT order_status, count(*) AS n FROM bronze_orders GROUP BY 1")
        yield home


@pytest.fixture(scope="module")
def url(hr: headrace.Headrace) -> Iterator[str]:
    # No request above 1 MB gets in: what is sent in chunks has to be below it.
    with running(hr, serve_body_bytes=1_000_000) as server:
        yield server.url


@pytest.fixture
def home(hr: headrace.Headrace) -> headrace.Headrace:
    """The home with empty tables."""
    emptied(hr, "bronze_orders", "bronze_order_items")
    return hr


@pytest.fixture
def hour(request: pytest.FixtureRequest) -> str:
    """An hour of the test's own: what one pushed, another's push of the same would not repeat."""
    return f"{datetime(2025, 1, 1) + timedelta(hours=zlib.crc32(request.node.name.encode()) % 8000):%Y-%m-%dT%H}"


def order(number: int, status: str = "pending", **more: Any) -> dict[str, Any]:
    times = dict.fromkeys(("created_at", "updated_at", "ingested_at"), AT)
    return {"order_id": number, "user_id": 1, "order_status": status, "order_total": "12.50", **times, **more}


def item(number: int, **more: Any) -> dict[str, Any]:
    line = {"order_item_id": number, "order_id": 1, "product_id": 1, "quantity": 2, "unit_price": "3.10"}
    return {**line, "ingested_at": AT, **more}


def write(data: Path, table: str, hour: str, changes: list[dict[str, Any]]) -> None:
    folder = data / "cdc" / table
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{hour}.json").write_text("".join(json.dumps(change) + "\n" for change in changes))


def inserts(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"insert": row} for row in rows]


def push(*arguments: str | Path) -> int:
    """The exit code of `headrace push`."""
    with pytest.raises(SystemExit) as ended:
        run(["push", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def count(home: headrace.Headrace, table: str) -> int:
    return len(rows_of(home, f"bronze_{table}"))


def test_an_hour_is_one_epoch_and_sent_again_changes_nothing(
    home: headrace.Headrace, url: str, hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = [{"delete": order(1)}, {"insert": order(1, "shipped")}]
    write(tmp_path, "orders", hour, [*inserts(order(1), order(2)), *moved])
    write(tmp_path, "order_items", hour, inserts(item(1), item(2), item(3)))
    before = home.epoch

    assert push("--hour", hour, "--url", url, "--data", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"Hour {hour}: 7 rows, 0\.00 MB read", lines[0])
    assert [line.split() for line in lines[1:3]] == [
        ["bronze_orders", "4", "rows"],
        ["bronze_order_items", "3", "rows"],
    ]
    assert re.fullmatch(r"All tables and views updated in \d+\.\d+s \(7 rows across 2 tables\)", lines[-1])
    assert len(lines) == 4

    assert home.epoch == before + 1
    assert rows_of(home, "statuses") == [{"order_status": "pending", "n": 1}, {"order_status": "shipped", "n": 1}]
    home.apply({"bronze_orders": [{"delete": {"order_id": 2}}]})
    assert push("--hour", hour, "--url", url, "--data", tmp_path) == 0
    assert count(home, "orders") == 1


def test_other_content_of_the_same_hour_is_another_push(
    home: headrace.Headrace, url: str, hour: str, tmp_path: Path
) -> None:
    for number in (1, 2):
        write(tmp_path, "orders", hour, inserts(order(number)))
        assert push("--hour", hour, "--url", url, "--data", tmp_path) == 0
    assert count(home, "orders") == 2


def test_without_any_file_it_says_so_and_fails(
    home: headrace.Headrace, url: str, hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "orders", "2026-11-30T05", inserts(order(1)))
    assert push("--hour", hour, "--url", url, "--data", tmp_path) == 1
    told = capsys.readouterr().err
    assert f"error: there are no changes for {hour}" in told
    assert "hint: " in told


def test_tables_can_go_by_themselves(
    home: headrace.Headrace, url: str, hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "orders", hour, inserts(order(1), order(2)))
    write(tmp_path, "order_items", hour, inserts(item(1)))
    assert push("--hour", hour, "--url", url, "--data", tmp_path, "--no-atomic") == 0
    lines = capsys.readouterr().out.splitlines()
    latencies = [line.split() for line in lines if re.fullmatch(r" +bronze_\w+ +\d+\.\d{3} s", line)]
    assert [name for name, *_ in latencies] == ["bronze_orders", "bronze_order_items"]
    assert lines[-1].endswith("(3 rows across 2 tables)")
    assert (count(home, "orders"), count(home, "order_items")) == (2, 1)


def test_large_tables_go_in_chunks_below_a_megabyte(
    home: headrace.Headrace, url: str, hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "orders", hour, inserts(*(order(i, coupon_code="x" * 1000) for i in range(2000))))
    write(tmp_path, "order_items", hour, inserts(item(1)))
    assert push("--hour", hour, "--url", url, "--data", tmp_path) == 1
    assert "the body is too large" in capsys.readouterr().err
    assert count(home, "orders") == 0
    assert push("--hour", hour, "--url", url, "--data", tmp_path, "--chunk-input") == 0
    told = capsys.readouterr().out
    assert re.search(r"bronze_orders +\d+\.\d{3} s in 3 requests", told)
    assert re.search(r"bronze_order_items +\d+\.\d{3} s\n", told)
    assert count(home, "orders") == 2000


def test_several_hours_for_programs(
    home: headrace.Headrace, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, hour in enumerate(("2025-11-30T23", "2025-12-01T00")):
        write(tmp_path, "orders", hour, inserts(order(number)))
    write(tmp_path, "order_items", "2025-12-01T00", inserts(item(1)))
    assert push("--hour", "2025-11-30T23", "--hours", "2", "--url", url, "--data", tmp_path, "--json") == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["hour"], one["rows"], one["tables"]) for one in told] == [
        ("2025-11-30T23", 1, {"bronze_orders": 1}),
        ("2025-12-01T00", 2, {"bronze_orders": 1, "bronze_order_items": 1}),
    ]
    assert told[1]["epoch"] == told[0]["epoch"] + 1 == home.epoch
    assert push("--hour", "2025-11-30T23", "--hours", "3", "--url", url, "--data", tmp_path) == 1
    assert "(2 of 3)" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["--atomic", "--no-atomic"])
def test_a_bad_change_is_named_and_stops_its_request(
    home: headrace.Headrace, url: str, hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    write(tmp_path, "orders", hour, inserts(order(1), order(2, order_total="12.505")))
    write(tmp_path, "order_items", hour, inserts(item(1)))
    assert push("--hour", hour, "--url", url, "--data", tmp_path, how) == 1
    told = capsys.readouterr().err
    assert "error: 1 change rejected" in told
    assert "would be rounded to fit DECIMAL(12,2)" in told
    assert "bronze_orders[1]" in told if how == "--atomic" else "line 2" in told and "bronze_order_items" in told
    assert count(home, "orders") == 0
    assert count(home, "order_items") == (0 if how == "--atomic" else 1)


def test_what_keeps_it_from_sending(
    hr: headrace.Headrace, hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "orders", hour, inserts(order(1)))
    assert push("--hour", hour, "--url", "http://127.0.0.1:9", "--data", tmp_path) == 1
    assert "hint: start headrace serve" in capsys.readouterr().err
    assert push("--hour", "yesterday", "--data", tmp_path) == 2
    assert "is no hour such as 2025-11-30T00" in capsys.readouterr().err
    with running(hr, serve_pipelines=("till",), api_keys=("a-secret",)) as server:
        address = server.url
        assert push("--hour", hour, "--url", address, "--data", tmp_path, "--json") == 1
        assert json.loads(capsys.readouterr().err)["code"] == "unauthorized"
        assert push("--hour", hour, "--url", address, "--data", tmp_path, "--api-key", "a-secret") == 1
        assert "there is no pipeline ecommerce-medallion-architecture" in capsys.readouterr().err
        told = ("--hour", hour, "--url", address, "--data", tmp_path, "--api-key", "a-secret", "--pipeline", "till")
        assert push(*told) == 0
