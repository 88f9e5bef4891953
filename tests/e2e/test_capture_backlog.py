"""A backlog of a real topic, taken as columns: the same tables, raw rows, dead letters and counts as one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.sources import taking
from tests.debezium_events import SOURCES
from tests.e2e.test_capture_kafka import produce, rows, shown
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.local import Servers

_MADE = """
CREATE TABLE things (id BIGINT PRIMARY KEY, n INT, price DECIMAL(10, 2), text STRING);
CREATE VIEW shares AS SELECT id, 100 / (n - 666) AS share FROM things;
CREATE VIEW totals AS SELECT text, count(*) AS n, sum(price) AS total FROM things GROUP BY text;
"""


def change(op: str, number: int, n: int = 0, text: str | None = "a") -> tuple[str, bytes]:
    row = {"id": number, "n": n, "price": f"{number}.25", "text": text}
    before, after = (row, None) if op == "d" else (None, row)
    source = {**SOURCES["postgresql"], "lsn": number}
    envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}
    return json.dumps({"id": number}), json.dumps(envelope, separators=(",", ":")).encode()


def committed(hr: Any, count: int) -> None:
    until(lambda: sum(shown(hr)[one] for one in ("applied", "stale", "dead")) >= count)


@pytest.mark.slow
def test_a_backlog_gives_what_its_records_give_one_by_one(
    spark: SparkSession, tmp_path: Path, local_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_servers.create_topic("backlog", partitions=1)
    values: list[Any] = [change("c", number, number % 50) for number in range(5_000)]
    values += [change("u", number, 7, "ü") for number in range(0, 5_000, 5)]
    values += [change("d", number) for number in range(0, 5_000, 7)]
    values += [(json.dumps({"id": 1}), None), (None, b"{no"), change("u", 2, 1, "__debezium_unavailable_value")]
    produce(local_servers, "backlog", values)
    taken: list[int] = []
    prepare = taking.prepare

    def noted(records: Any, ways: Any) -> Any:
        taken.append(len(records))
        return prepare(records, ways)

    monkeypatch.setattr(taking, "prepare", noted)
    found: list[Any] = []
    for name, bulk in (("whole", 100_000), ("single", 0)):
        with headrace.open(str(tmp_path / name), spark=spark) as hr:
            hr.execute(_MADE)
            hr.execute(
                f"CREATE SOURCE s INTO things FROM KAFKA '{local_servers.bootstrap}/backlog' "
                f"WITH (format = 'debezium', decimal_mode = 'string', bulk_records = {bulk})"
            )
            committed(hr, len(values))
            if name == "whole":
                assert sum(taken) >= 5_000
                # One of these makes a view fail: it alone is a dead letter.
                more = [change("c", number, 666 if number == 9_000 else 1) for number in range(6_000, 12_000)]
                produce(local_servers, "backlog", more)
                values += more
            committed(hr, len(values))
            told = shown(hr)
            found.append(
                [
                    rows(hr, "SELECT * FROM things"),
                    rows(hr, "SELECT * FROM totals"),
                    rows(hr, "SELECT * EXCEPT (arrived_at) FROM s_raw"),
                    rows(hr, "SELECT * EXCEPT (arrived_at) FROM dead_letters"),
                    [told[one] for one in ("received", "applied", "stale", "dead", "position")],
                ]
            )
            assert told["received"] == told["applied"] + told["stale"] + told["dead"]
            assert [row[0] for row in rows(hr, "SELECT stage FROM dead_letters")] == ["text", "view"]
            assert hr.verify().ok
    assert found[0] == found[1]
    assert all(count >= 5_000 for count in taken)
