"""Transactions of PostgreSQL are taken whole, and its tables are followed when their columns change."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg

from tests.e2e.test_capture_kafka import rows, shown
from tests.waiting import until

if TYPE_CHECKING:
    from headrace.local import Servers

ROUNDS = 60
BOTH = "SELECT d.total AS out, c.total AS back, d.n AS debits, c.n AS credits FROM debited d CROSS JOIN credited c"


def test_no_reader_ever_sees_half_of_a_transaction(home: Any, local_servers: Servers) -> None:
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as database:
        database.execute("CREATE TABLE debits (id INT PRIMARY KEY, amount INT)")
        database.execute("CREATE TABLE credits (id INT PRIMARY KEY, amount INT)")
        database.execute("INSERT INTO debits VALUES (0, 0)")
        database.execute("INSERT INTO credits VALUES (0, 0)")
        settings = {"provide.transaction.metadata": "true"}
        for part in ("key", "value"):
            settings[f"{part}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
            settings[f"{part}.converter.schemas.enable"] = "true"
        local_servers.capture("bank", ["public.debits", "public.credits"], settings)
        # The tables are made by the first records: they have their schema.
        home.execute(
            f"CREATE SOURCE s FROM KAFKA '{local_servers.bootstrap}/bank.public.*' "
            "WITH (format = 'debezium', transactions = TRUE, max_records = 7)"
        )
        until(lambda: {"debits", "credits"} <= {one["name"] for one in home.execute("SHOW TABLES").to_pylist()})
        home.execute(
            """
            CREATE VIEW debited AS SELECT sum(amount) AS total, count(*) AS n FROM debits;
            CREATE VIEW credited AS SELECT sum(amount) AS total, count(*) AS n FROM credits
            """
        )
        seen: list[tuple[int, ...]] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                seen.extend(rows(home, BOTH))

        reader = threading.Thread(target=look)
        reader.start()
        try:
            for number in range(1, ROUNDS + 1):
                with database.transaction():
                    database.execute("INSERT INTO debits VALUES (%s, %s)", (number, number))
                    if number % 3 == 0:
                        database.execute("UPDATE debits SET id = -id WHERE id = %s", (number,))
                    database.execute("INSERT INTO credits VALUES (%s, %s)", (number, number))
                if number == ROUNDS // 2:
                    database.execute("ALTER TABLE debits ADD COLUMN note TEXT")
                if number % 20 == 0:
                    # The reader is to see states in between, however fast the machine takes the transactions.
                    until(lambda number=number: len(set(seen)) > number // 20)
            until(lambda: rows(home, "SELECT n FROM credited") == [(ROUNDS + 1,)])
        finally:
            done.set()
            reader.join()
        assert [one for one in seen if one[0] != one[1] or one[2] != one[3]] == []
        assert len(set(seen)) > 3
        assert home.query("SELECT * FROM debits LIMIT 0").column_names == ["id", "amount", "note"]
        assert shown(home)["dead"] == 0
        theirs = sorted(tuple(row) for row in database.execute("SELECT id, amount, note FROM debits"))
        assert rows(home, "SELECT * FROM debits") == theirs
        until(lambda: shown(home)["pending"] == 0)
        assert home.verify().ok
    local_servers.delete_connector("bank")
