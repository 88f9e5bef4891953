"""A real server on loopback, over a home of its own; clients are plain httpx."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.feed_database import Database
from tests.relation_rows import rows_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No time limit of the server ends before the patience of the tests, whatever the machine has to do beside them.
LIMITS = dict.fromkeys(("serve_query_time", "serve_patience", "serve_body_time"), timedelta(seconds=PATIENCE))
# Nothing reads parts and notes: their epochs need no Spark, so most tests use them.
SHOP = """
CREATE TABLE parts (id INT PRIMARY KEY, name STRING, price DECIMAL(10,2));
CREATE TABLE notes (a INT, b STRING);
CREATE TABLE items (id INT PRIMARY KEY, name STRING, price DECIMAL(10,2));
CREATE VIEW totals AS SELECT name, count(*) AS n, sum(price) AS total FROM items GROUP BY name;
CREATE VIEW shares AS SELECT id, 100 / (id - 666) AS share FROM items;
"""


class Served:
    """A running server: its address, its home, and a client."""

    def __init__(self, url: str, hr: Any, client: httpx.Client, service: Any) -> None:
        self.url = url
        self.hr = hr
        self.client = client
        self.service = service

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def push(self, table: str, body: str | bytes, **parameters: Any) -> httpx.Response:
        return self.client.post(f"/v1/ingress/{table}", params={"wait": "true", **parameters}, content=body)

    def query(self, sql: str, accept: str = "application/json", **parts: Any) -> httpx.Response:
        return self.client.post("/v1/query", json={"sql": sql, **parts}, headers={"Accept": accept})

    def asked(self, sql: str) -> list[dict[str, Any]]:
        answer = self.query(sql)
        assert answer.status_code == 200, answer.text
        return answer.json()["rows"]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What a relation holds, in order, read past the server."""
        return rows_of(self.hr, name)


def emptied(hr: Any, *names: str) -> None:
    """Take everything out of tables, without Spark where nothing reads them."""
    deletes = {name: [{"delete": row} for row in rows_of(hr, name)] for name in names or ("parts", "notes", "items")}
    hr.apply({name: changes for name, changes in deletes.items() if changes})


@cache
def query_processes() -> Any:
    """The query processes that the servers of a run share: each takes seconds to start.

    One is there before anybody asks: on a busy machine its start may take longer than a statement has time.
    """
    from headrace.query_processes.pool import Stop
    from headrace.query_processes.queries import processes_for
    from headrace.query_processes.question import Question
    from headrace.settings import Settings

    processes = processes_for(Settings())
    atexit.register(processes.close)
    processes.rows(Question("rows", "SELECT 1 AS one", {}), Stop())
    return processes


@contextmanager
def running(hr: Any, processes: Any = None, **overrides: Any) -> Iterator[Served]:
    """A server of an open home, in a thread of this process."""
    from headrace.serving.app import build_app
    from headrace.settings import Settings
    from tests.servers import listening

    app = build_app(hr, Settings(**{**LIMITS, **overrides}), processes or query_processes())
    keys = overrides.get("api_keys")
    headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
    with (
        listening(app) as (server, _),
        httpx.Client(base_url=server.url, timeout=PATIENCE, headers=headers) as client,
    ):
        yield Served(server.url, hr, client, app.state.service)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL alone, without a JVM, which tests may kill and start again."""
    from headrace import local

    with local.start(kafka=False, connect=False) as servers:
        yield servers


@pytest.fixture
def database(postgres_server: Any) -> Iterator[Database]:
    """An empty schema of that PostgreSQL."""
    made = Database(postgres_server, f"s{uuid.uuid4().hex[:12]}")
    made.run("CREATE SCHEMA {}")
    yield made
    for delivery in made.deliveries:
        delivery.close()
    made.run("DROP SCHEMA {} CASCADE")


@pytest.fixture(scope="package")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One home for all tests of the server: Spark warms up once."""
    import headrace

    with headrace.open(str(tmp_path_factory.mktemp("shop") / "home"), spark=spark) as hr:
        hr.execute(SHOP)
        yield hr


@pytest.fixture(scope="package")
def plain_server(shop: Any) -> Iterator[Served]:
    with running(shop) as served:
        yield served


@pytest.fixture
def server(plain_server: Served) -> Iterator[Served]:
    """A server with the usual settings over the shop, whose tables are empty again."""
    emptied(plain_server.hr)
    yield plain_server
    assert plain_server.client.get("/readyz").status_code == 200


@pytest.fixture
def server_with(shop: Any) -> Callable[..., Any]:
    """Servers over the shop with other settings."""
    emptied(shop)
    return lambda **overrides: running(shop, **overrides)
