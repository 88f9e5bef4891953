"""Ten hours pushed by the public feldera client come to what ten hours pushed by `headrace push` come to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

import headrace
from headrace.cli.main import run
from headrace.face import home_of
from tests.e2e.conftest import running
from tests.relation_rows import rows_of

MEDALLION = Path(__file__).parents[2] / "examples" / "medallion"
FIRST = datetime(2025, 11, 30)
HOURS = 10
TABLES = ("orders", "order_items", "clickstream_events", "inventory_events")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small shop: its snapshot and its hours."""
    out = tmp_path_factory.mktemp("data")
    made = [
        sys.executable,
        str(MEDALLION / "generate.py"),
        "--scale",
        "0.002",
        "--hours",
        str(HOURS),
        "--out",
        str(out),
    ]
    subprocess.run(made, check=True, capture_output=True)
    return out


@pytest.fixture
def homes(
    request: pytest.FixtureRequest, spark: Any, data: Path, tmp_path: Path
) -> Iterator[tuple[headrace.Headrace, headrace.Headrace]]:
    """Two homes that hold the snapshot, and the views of the scripts that the test names."""
    with (
        headrace.open(tmp_path / "one", spark=spark) as one,
        headrace.open(tmp_path / "two", spark=spark) as two,
    ):
        for home in (one, two):
            _fill(home, data, request.param)
        yield one, two


@pytest.mark.slow
@pytest.mark.parametrize(
    "homes",
    [
        pytest.param((), id="tables"),
        pytest.param(("2_silver.sql", "3_gold.sql"), id="views", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_the_client_and_the_command_agree(
    homes: tuple[headrace.Headrace, headrace.Headrace], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from feldera import FelderaClient, Pipeline

    by_client, by_command = homes
    with running(by_client) as server:
        pipeline = Pipeline.get("ecommerce-medallion-architecture", FelderaClient(server.url))
        for hour in range(HOURS):
            for table in TABLES:
                pipeline.input_json(f"bronze_{table}", _changes(data, table, hour), update_format="insert_delete")
    with running(by_command) as server, pytest.raises(SystemExit) as ended:
        run(["push", "--hour", f"{FIRST:%Y-%m-%dT%H}", "--hours", str(HOURS), "--data", str(data), "--url", server.url])
    assert ended.value.code == 0
    assert capsys.readouterr().out.count("All tables and views updated in") == HOURS

    relations = list(home_of(by_client).core.relations())
    assert len(relations) in (7, 22)
    for name in relations:
        assert rows_of(by_command, name) == rows_of(by_client, name), name
    assert by_client.verify().ok
    # It was about something: the hours moved all four tables and every gold view.
    before = by_command.epoch - HOURS
    moved = {name for name in relations if by_command.changes(name, since=before).num_rows}
    assert {f"bronze_{table}" for table in TABLES} <= moved
    assert {name for name in relations if name.startswith("gold_")} <= moved


def _fill(home: headrace.Headrace, data: Path, scripts: Sequence[str]) -> None:
    home.execute((MEDALLION / "sql" / "1_bronze.sql").read_text())
    snapshot: dict[str, list[object]] = {}
    for folder in sorted((data / "snapshot").iterdir()):
        rows = deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        snapshot[f"bronze_{folder.name}"] = [{"insert": row} for row in rows]
    home.apply(snapshot)
    for name in scripts:
        home.execute((MEDALLION / "sql" / name).read_text())


def _changes(data: Path, table: str, hour: int) -> list[Any]:
    file = data / "cdc" / table / f"{FIRST + timedelta(hours=hour):%Y-%m-%dT%H}.json"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
