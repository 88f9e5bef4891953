"""A backup of a home at work: another home, at the epoch that the manifest says, right and with its past."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.ledger.backup import read_manifest, restore
from headrace.ledger.base import Base
from tests.small_homes import flip

SETUP = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT);
CREATE VIEW total AS SELECT g, SUM(v) AS s, COUNT(*) AS n FROM t GROUP BY g;
CREATE VIEW best AS SELECT * FROM (SELECT id, g, v, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC, id) AS r FROM t)
 WHERE r <= 2;
"""
RELATIONS = ("t", "total", "best")


def rows(hr: Any, name: str, epoch: int | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}", epoch=epoch).to_pylist())


def change(i: int) -> list[dict[str, Any]]:
    gone = [{"delete": {"id": i - 5}}] if i > 5 and i % 3 == 0 else []
    return [{"insert": {"id": i, "g": f"g{i % 4}", "v": i * 7 % 11}}, *gone]


@pytest.mark.slow
def test_a_backup_of_a_home_at_work(spark: Any, tmp_path: Path) -> None:
    with headrace.open(str(tmp_path / "home"), spark=spark, inline_bytes=300) as hr:
        hr.execute(SETUP)
        for i in range(8):
            hr.apply({"t": change(i)})
        hr.fold()
        past = hr.epoch - 3
        stop = threading.Event()
        applied = [8]

        def work() -> None:
            while not stop.is_set():
                hr.apply({"t": change(applied[-1])})
                applied.append(applied[-1] + 1)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            before = hr.epoch
            summary = hr.backup(tmp_path / "copy")
            after = hr.epoch
        finally:
            stop.set()
            worker.join()
        epoch = summary["epoch"]
        assert before <= epoch <= after
        assert epoch == read_manifest(tmp_path / "copy").epoch
        hr.fold()
        expected = {(name, at): rows(hr, name, at) for name in RELATIONS for at in (past, before, epoch)}

    restore(tmp_path / "copy", tmp_path / "again")
    with headrace.open(str(tmp_path / "again"), spark=spark) as again:
        assert again.epoch == epoch
        assert again.verify().ok
        for (name, at), wanted in expected.items():
            assert rows(again, name, at) == wanted
        again.apply({"t": change(10_000)})
        again.fold()
        assert again.verify().ok
        assert again.epoch == epoch + 1

    assert _verified(tmp_path / "again")[0] == 0
    file = Base(tmp_path / "again" / "tables" / "total").files[0]
    flip(file)
    code, found = _verified(tmp_path / "again")
    assert code == 1
    assert [Path(one["path"]).name for one in found["damaged"]] == [file.name]
    assert found["damaged"][0]["relation"] == "total"
    assert found["newest_epoch"] == epoch + 1


def _verified(home: Path) -> tuple[int, Any]:
    command = [sys.executable, "-c", "from headrace.cli.main import run; run()"]
    asked = [*command, "verify", "--storage", "--json", "--home", str(home)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_a_view_made_again_keeps_its_rows(spark: Any, tmp_path: Path) -> None:
    view = "CREATE VIEW total AS SELECT g, SUM(v) AS s FROM t GROUP BY g"
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT)")
        hr.execute(view)
        hr.apply({"t": change(1)})
        hr.fold()
        hr.execute("DROP VIEW total")
        hr.execute(view)
        hr.fold()
        wanted = rows(hr, "total")
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        assert rows(hr, "total") == wanted != []
        assert hr.verify().ok
