"""Attacks that take many requests: memory over all of them, dense bodies at once."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.face import home_of
from tests.e2e.conftest import Served
from tests.waiting import PATIENCE


def _megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_memory_is_flat_over_many_pushes_and_queries(server: Served) -> None:
    def push(numbers: range) -> None:
        for number in numbers:
            row = {"id": number % 50, "name": f"name {number}", "price": "1.25"}
            assert server.push("parts", json.dumps({"insert": row})).status_code == 200

    def ask(numbers: range) -> None:
        for number in numbers:
            # By its key, and whole: neither needs Spark, so what is measured is the server's own.
            assert server.query(f"SELECT * FROM parts WHERE id = {number % 60}").status_code == 200
            assert server.query(f"SELECT * FROM parts LIMIT {number % 60}").status_code == 200

    push(range(200))
    ask(range(50))
    before, files = _megabytes(), _open_files()
    push(range(200, 800))
    ask(range(50, 200))
    assert _megabytes() - before < 40
    assert _open_files() - files < 20
    assert len(server.rows("parts")) == 50


@pytest.mark.slow
def test_a_handful_of_dense_bodies_takes_no_more_than_the_room(server_with: Callable[..., Any]) -> None:
    body = b'{"a":1}\n' * 150_000
    with server_with(serve_room_bytes=150_000_000) as served, ThreadPoolExecutor(8) as threads:
        before, most = _megabytes(), 0.0
        path = "/v1/ingress/notes?wait=true&update_format=raw"
        sent = [threads.submit(httpx.post, f"{served.url}{path}", content=body, timeout=PATIENCE) for _ in range(8)]
        while not all(one.done() for one in sent):
            most = max(most, _megabytes() - before)
            time.sleep(0.01)
        statuses = Counter(one.result().status_code for one in sent)
        assert set(statuses) <= {200, 429}
        assert statuses[200] >= 1
        # Together they would take a gigabyte.
        assert most < 500
        dense = served.client.post(path, content=body * 2)
        assert (dense.status_code, dense.json()["code"]) == (413, "too_large")
        assert sum(home_of(served.hr).core.relations()["notes"][0].all().weights.tolist()) == 150_000 * statuses[200]
