"""Rows of the handbook's failure table, acted out against a running server: what an operator sees, and that it ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headrace.epoch import core as epoch_core
from tests.e2e.conftest import Served, running
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = """
CREATE TABLE items (id INT PRIMARY KEY, name STRING);
CREATE VIEW shares AS SELECT id, 100 / (id - 666) AS share FROM items;
"""
DISK_BYTES = 32 * 1024 * 1024


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose home lies on a small file system of its own."""
    import headrace

    disk = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system takes more rights than this run has")
    try:
        with headrace.open(str(disk / "home"), spark=spark) as hr, running_with(hr) as server:
            yield server
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def running_with(hr: Any) -> Any:
    hr.execute(SQL)
    return running(hr)


def disk_of(served: Served) -> Path:
    return Path(served.service.home.path).parent


def push(served: Served, number: int, name: str = "nut") -> httpx.Response:
    body = {"items": [{"insert": {"id": number, "name": name}}]}
    return served.client.post("/v1/epochs", json=body, headers={"Idempotency-Key": f"{name} {number}"})


def figure(served: Served, name: str) -> float:
    lines = served.client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


def refused_for_now(answer: httpx.Response) -> bool:
    """A refusal that a sender understands: nothing was done, and when to come back."""
    told = answer.json()
    assert "/home" not in answer.text, "where the home lies is nobody's matter"
    return answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0 and bool(told["hint"])


def test_a_full_disk_refuses_changes_and_reading_goes_on(served: Served) -> None:
    assert push(served, 1).status_code == 200
    ballast = disk_of(served) / "ballast"
    stats = os.statvfs(disk_of(served))
    ballast.write_bytes(b"x" * (stats.f_bavail * stats.f_frsize))
    try:
        answer = push(served, 2)
        assert refused_for_now(answer), answer.text
        assert "No space left" in answer.json()["detail"]
        assert len(served.asked("SELECT * FROM items")) == 1
        assert served.client.get("/healthz").status_code == 200
    finally:
        ballast.unlink()
    # The sender's own attempt again, and no other.
    assert push(served, 2).status_code == 200
    assert push(served, 2).json()["epoch"] == push(served, 2).json()["epoch"]
    assert len(served.asked("SELECT * FROM items")) == 2


def test_a_ledger_that_cannot_be_written_refuses_changes_until_it_can(served: Served) -> None:
    before = served.hr.epoch
    subprocess.run(["mount", "-o", "remount,ro", str(disk_of(served))], check=True)
    try:
        answer = push(served, 3)
        assert refused_for_now(answer), answer.text
        assert served.hr.epoch == before
        assert len(served.asked("SELECT * FROM shares")) == 2, "views too are read"
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk_of(served))], check=True)
    assert push(served, 3).status_code == 200
    assert served.hr.verify().ok


def test_a_view_that_fails_on_a_row_tells_its_sender_which(served: Served) -> None:
    before = served.hr.epoch
    answer = push(served, 666)
    assert answer.status_code == 422
    told = answer.json()
    assert told["view"] == "shares"
    assert "666" in str(told["row"])
    assert served.hr.epoch == before
    assert push(served, 4).status_code == 200


def test_a_clock_that_is_set_back_takes_no_epoch_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    right = epoch_core.now_utc
    monkeypatch.setattr(epoch_core, "now_utc", lambda: right() - timedelta(days=1))
    assert push(served, 5).status_code == 200
    monkeypatch.undo()
    assert push(served, 6).status_code == 200
    times = [one["committed_at"] for one in served.client.get("/v1/epochs").json()["epochs"]]
    assert times == sorted(times)
    assert served.client.get("/readyz").status_code == 200


def test_a_dead_sink_shows_in_figures_and_holds_up_nobody(served: Served, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    served.hr.execute(
        f"CREATE CHANGEFEED f FOR TABLE items INTO FILES '{blocked / 'out'}' WITH (flush_interval_ms = 5)"
    )
    try:
        for number in (7, 8):
            assert push(served, number).status_code == 200
        until(lambda: figure(served, 'headrace_changefeed_retries_total{changefeed="f"}') > 0)
        (told,) = served.client.get("/v1/changefeeds").json()
        assert (told["state"], bool(told["error"])) == ("Running", True)
        assert figure(served, 'headrace_changefeed_lag_epochs{changefeed="f"}') > 0
        assert {7, 8} <= {one["id"] for one in served.asked("SELECT * FROM shares")}
        blocked.unlink()
        until(lambda: figure(served, 'headrace_changefeed_lag_epochs{changefeed="f"}') == 0)
        (told,) = served.client.get("/v1/changefeeds").json()
        assert told["error"] is None
    finally:
        served.hr.execute("DROP CHANGEFEED f")
