"""Real databases through Debezium and Kafka into exact tables: what PostgreSQL holds is what our tables hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import confluent_kafka
import confluent_kafka.admin
import psycopg
import pytest

from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from headrace.local import Servers


def rows(hr: Any, sql: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in hr.query(sql).to_pylist())


def shown(hr: Any, name: str = "s") -> dict[str, Any]:
    (row,) = [one for one in hr.execute("SHOW SOURCES").to_pylist() if one["name"] == name]
    return row


def produce(servers: Servers, topic: str, values: list[Any]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers.bootstrap})
    for key, value in values:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def put(number: int, value: int = 0) -> bytes:
    return json.dumps({"insert": {"id": number, "n": value}}).encode()


@pytest.mark.slow
def test_records_of_a_topic_are_taken_once_over_restarts_of_the_broker(home: Any, local_servers: Servers) -> None:
    local_servers.create_topic("numbers", partitions=3)
    produce(local_servers, "numbers", [(str(number), put(number)) for number in range(100)])
    home.execute("CREATE TABLE bag (id INT, n INT); CREATE VIEW total AS SELECT count(*) AS n FROM bag")
    home.execute(f"CREATE SOURCE s INTO bag FROM KAFKA '{local_servers.bootstrap}/numbers'")
    until(lambda: shown(home)["applied"] == 100)
    local_servers.restart_broker()
    produce(local_servers, "numbers", [(str(number), put(number)) for number in range(100, 200)])
    produce(local_servers, "numbers", [("bad", b"{no"), ("last", put(200))])
    until(lambda: shown(home)["applied"] == 201)
    assert rows(home, "SELECT * FROM total") == [(201,)]
    assert rows(home, "SELECT count(DISTINCT id) FROM bag") == [(201,)]
    told = shown(home)
    assert (told["dead"], told["received"], told["state"]) == (1, 202, "Running")
    until(lambda: (shown(home)["lag_records"], shown(home)["lag_seconds"]) == (0, 0))
    assert shown(home)["records_per_second"] > 0
    assert rows(home, "SELECT count(*), count(DISTINCT event_id) FROM s_raw") == [(201, 201)]
    assert home.verify().ok


@pytest.mark.parametrize(
    ("start", "expected"), [("latest", [5]), ("offset:3", [3, 4, 5]), ("earliest", [0, 1, 2, 3, 4, 5])]
)
def test_where_a_source_begins(home: Any, local_servers: Servers, start: str, expected: list[int]) -> None:
    topic = f"starts-{start.replace(':', '-')}"
    local_servers.create_topic(topic)
    produce(local_servers, topic, [(None, put(number)) for number in range(5)])
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    home.execute(f"CREATE SOURCE s INTO t FROM KAFKA '{local_servers.bootstrap}/{topic}' WITH (start = '{start}')")
    until(lambda: shown(home)["lag_records"] == 0)
    produce(local_servers, topic, [(None, put(5))])
    until(lambda: [row[0] for row in rows(home, "SELECT id FROM t")] == expected)


def test_a_topic_that_was_made_anew_is_told_and_taken_from_its_beginning(home: Any, local_servers: Servers) -> None:
    local_servers.create_topic("remade")
    produce(local_servers, "remade", [(None, put(number)) for number in range(5)])
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    home.execute(f"CREATE SOURCE s INTO t FROM KAFKA '{local_servers.bootstrap}/remade'")
    until(lambda: shown(home)["applied"] == 5)
    home.execute("PAUSE SOURCE s")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": local_servers.bootstrap})
    admin.delete_topics(["remade"])["remade"].result(PATIENCE)
    until(lambda: "remade" not in admin.list_topics(timeout=PATIENCE).topics)
    local_servers.create_topic("remade")
    # More than were read before: the old offset is within it.
    produce(local_servers, "remade", [(None, put(100 + number)) for number in range(9)])
    home.execute("RESUME SOURCE s")
    until(lambda: shown(home)["state"] == "Error")
    assert "made anew" in shown(home)["error"]
    assert rows(home, "SELECT count(*) FROM t") == [(5,)]
    home.execute("RESUME SOURCE s WITH SNAPSHOT")
    until(lambda: rows(home, "SELECT count(*) FROM t WHERE id >= 100") == [(9,)])
    assert shown(home)["state"] == "Running"
    assert home.verify().ok


@pytest.mark.slow
def test_a_source_that_never_connected_can_be_dropped(home: Any) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    url = "postgresql://nobody@127.0.0.1:1/none"
    home.execute(f"CREATE SOURCE s INTO t FROM POSTGRES '{url}' WITH (password = 'env:HOME')")
    until(lambda: shown(home)["error"] is not None)
    home.execute("DROP SOURCE s")
    assert home.execute("SHOW SOURCES").num_rows == 0


def test_a_database_is_followed_row_by_row(home: Any, local_servers: Servers) -> None:
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as database:
        database.execute("CREATE TABLE customers (id INT PRIMARY KEY, name TEXT)")
        database.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount NUMERIC(10, 2), at TIMESTAMPTZ)"
        )
        database.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 20) n")
        database.execute("INSERT INTO orders SELECT n, n % 20 + 1, n * 1.25, now() FROM generate_series(1, 200) n")
        local_servers.capture("shop", ["public.customers", "public.orders"])
        home.execute(
            """
            CREATE TABLE customers (id INT PRIMARY KEY, name STRING);
            CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DECIMAL(10, 2), at TIMESTAMP);
            CREATE VIEW spent AS SELECT c.name, sum(o.amount) AS total, count(*) AS n
                FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.name
            """
        )
        home.execute(f"CREATE SOURCE s FROM KAFKA '{local_servers.bootstrap}/shop.public.*' WITH (format = 'debezium')")
        question = (
            "SELECT c.name, sum(o.amount), count(*) FROM orders o JOIN customers c ON o.customer = c.id GROUP BY 1"
        )

        def agree() -> bool:
            return rows(home, "SELECT * FROM spent") == sorted(tuple(row) for row in database.execute(question))

        until(agree)
        database.execute("UPDATE orders SET amount = amount + 1 WHERE id <= 50")
        database.execute("DELETE FROM orders WHERE id % 7 = 0")
        database.execute("UPDATE customers SET name = 'renamed' WHERE id = 3")
        database.execute("UPDATE orders SET id = id + 1000 WHERE id BETWEEN 100 AND 110")
        until(agree)
        local_servers.kill_connect()
        database.execute("INSERT INTO orders SELECT n, 1, 1, now() FROM generate_series(5000, 5100) n")
        local_servers.connect.start()
        until(agree)
        assert shown(home)["dead"] == 0
        assert home.verify().ok
        (mine,) = rows(home, "SELECT count(*), sum(amount) FROM orders")
        assert mine == tuple(database.execute("SELECT count(*), sum(amount) FROM orders").fetchone() or ())


def test_a_topic_that_is_read_again_changes_nothing_and_a_late_change_is_stale(
    home: Any, local_servers: Servers
) -> None:
    local_servers.create_topic("again")
    produce(local_servers, "again", [("1", put(1, 1)), ("2", put(2, 1)), ("1", put(1, 2))])
    produce(
        local_servers, "again", [("2", json.dumps({"delete": {"id": 2}}).encode()), ("3", b'{"insert": {"id": 3}}')]
    )
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)")
    where = f"INTO t FROM KAFKA '{local_servers.bootstrap}/again'"
    home.execute(f"CREATE SOURCE s {where}")
    until(lambda: shown(home)["applied"] == 4)
    produce(local_servers, "again", [("3", put(3, 3))])
    until(lambda: shown(home)["applied"] == 5)
    epoch = home.epoch
    home.execute(f"CREATE SOURCE s2 {where}")
    until(lambda: shown(home, "s2")["stale"] == 5)
    assert shown(home, "s2")["dead"] == 1
    assert rows(home, "SELECT * FROM t") == [(1, 2), (3, 3)]
    assert home.changes("t", since=epoch).num_rows == 0
    home.execute(f"CREATE SOURCE s3 {where} WITH (order = 'arrival')")
    until(lambda: shown(home, "s3")["applied"] == 5)
    assert shown(home, "s3")["stale"] == 0


@pytest.mark.slow
def test_a_table_is_read_once_more_between_its_changes(home: Any, local_servers: Servers) -> None:
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as database:
        database.execute("CREATE TABLE again (id INT PRIMARY KEY, n INT)")
        database.execute("INSERT INTO again SELECT n, n FROM generate_series(1, 50) n")
        channel = {
            "signal.enabled.channels": "kafka",
            "signal.kafka.topic": "signals",
            "signal.kafka.bootstrap.servers": local_servers.bootstrap,
            "read.only": "true",
        }
        local_servers.create_topic("signals")
        local_servers.capture("sig", ["public.again"], {**channel, "heartbeat.interval.ms": "500"})
        home.execute("CREATE TABLE again (id INT PRIMARY KEY, n INT)")
        home.execute(
            f"CREATE SOURCE s INTO again FROM KAFKA '{local_servers.bootstrap}/sig.public.again' "
            "WITH (format = 'debezium', signal_topic = 'signals')"
        )
        until(lambda: shown(home)["applied"] == 50)
        home.execute("SNAPSHOT SOURCE s TABLE 'public.again'")
        until(lambda: shown(home)["received"] == 100)
        database.execute("UPDATE again SET n = -1 WHERE id = 7")
        until(lambda: rows(home, "SELECT id FROM again WHERE n = -1") == [(7,)])
        local_servers.delete_connector("sig")


def test_a_topic_that_lost_what_comes_next_goes_on_from_what_it_has(home: Any, local_servers: Servers) -> None:
    local_servers.create_topic("short")
    produce(local_servers, "short", [(None, put(number)) for number in range(10)])
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    home.execute(f"CREATE SOURCE s INTO t FROM KAFKA '{local_servers.bootstrap}/short'")
    until(lambda: shown(home)["applied"] == 10)
    home.execute("PAUSE SOURCE s")
    produce(local_servers, "short", [(None, put(number)) for number in range(10, 20)])
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": local_servers.bootstrap})
    for removed in admin.delete_records([confluent_kafka.TopicPartition("short", 0, 15)]).values():
        removed.result(PATIENCE)
    home.execute("RESUME SOURCE s")
    until(lambda: shown(home)["state"] == "Error")
    assert "no longer has what comes next" in shown(home)["error"]
    home.execute("RESUME SOURCE s WITH SNAPSHOT")
    until(lambda: [one for (one,) in rows(home, "SELECT id FROM t")] == [*range(10), *range(15, 20)])
    assert shown(home)["state"] == "Running"
