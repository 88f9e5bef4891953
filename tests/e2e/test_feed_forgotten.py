"""What real sinks keep of a feed: gone with it, and missed where the sink was put back to an older copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from tests.bare_home import BareHome
from tests.feed_database import Database
from tests.kafka_reading import committed
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from headrace.local import Servers


def test_postgres_forgets_a_feed_whose_table_is_gone(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARGET", database.location("rows"))
    hr = BareHome(tmp_path / "home")
    try:
        hr.create_table("t", StructType([StructField("id", IntegerType(), False)]), ("id",))
        hr.execute("CREATE CHANGEFEED f FOR TABLE t INTO POSTGRES 'env:TARGET' WITH (flush_interval_ms = 5)")
        hr.apply({"t": [{"insert": {"id": 1}}]})
        until(lambda: database.run("SELECT to_regclass('{}.rows') IS NOT NULL") == [(True,)])
        until(lambda: database.rows("rows") == [(1,)])
        assert database.run("SELECT feed FROM {}.headrace_feeds") == [("f",)]
        hr.execute("DROP TABLE t CASCADE")
        assert database.run("SELECT feed FROM {}.headrace_feeds") == []
        assert database.run("SELECT count(*) FROM {}.headrace_feed_runs") == [(0,)]
        assert database.rows("rows") == [(1,)]
    finally:
        hr.close()


def shown(hr: BareHome) -> dict[str, Any]:
    return hr.execute("SHOW CHANGEFEEDS").to_pylist()[0]


@pytest.mark.slow
def test_a_broker_that_was_put_back_to_an_older_copy_is_noticed(tmp_path: Path, local_servers: Servers) -> None:
    hr = BareHome(tmp_path / "home")
    try:
        hr.create_table("t", StructType([StructField("id", IntegerType(), False)]), ("id",))
        hr.execute(
            f"CREATE CHANGEFEED f FOR TABLE t INTO KAFKA '{local_servers.bootstrap}/put_back' "
            "WITH (flush_interval_ms = 5, create_topic = true)"
        )
        hr.apply({"t": [{"insert": {"id": 1}}]})
        until(lambda: shown(hr)["last_sequence"] == 1)
        # What was told before without transactions is nothing that their progress could lack.
        hr.execute("ALTER CHANGEFEED f SET (exactly_once = true)")
        for number in (2, 3):
            hr.apply({"t": [{"insert": {"id": number}}]})
            until(lambda number=number: shown(hr)["last_sequence"] == number)
        hr.execute("PAUSE CHANGEFEED f")
        # The record of progress as the older copy has it.
        progress = [one for one in committed(local_servers, "put_back.progress") if one.value()]
        older = next(one for one in progress if b'"told": 2' in one.value())
        producer = confluent_kafka.Producer({"bootstrap.servers": local_servers.bootstrap})
        producer.produce("put_back.progress", older.value(), older.key(), 0)
        assert producer.flush(PATIENCE) == 0
        hr.execute("RESUME CHANGEFEED f")
        until(lambda: shown(hr)["state"] == "Error")
        assert "does not hold what the feed has delivered" in shown(hr)["error"]
        assert "knows the feed up to event 2, and has confirmed event 3" in shown(hr)["error"]
        hr.execute("RESYNC CHANGEFEED f")
        until(lambda: shown(hr)["state"] == "Running" and shown(hr)["lag"] == 0 and shown(hr)["last_sequence"] >= 7)
    finally:
        hr.close()
