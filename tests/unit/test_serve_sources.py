"""Sources over HTTP, by their routes and by statements, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.access.grants import Access, read_grant, unlimited
from headrace.definitions.sources import table_into
from headrace.errors import RelationNameError
from headrace.serving import problems, query, sources
from headrace.serving.access import ACCESS
from headrace.serving.statement_runner import StatementRunner
from headrace.settings import Settings
from tests.bare_home import BareHome
from tests.small_engine import catalog_of, table, view
from tests.unit.test_serve_changefeeds import Client

COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("n", IntegerType())])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[BareHome]:
    one = BareHome(tmp_path / "home")
    one.create_table("t", COLUMNS, ("id",))
    yield one
    one.close()


def client_of(
    home: BareHome, access: Access, definitions: bool = True, locations: tuple[str, ...] | None = None
) -> Client:
    app = FastAPI()
    problems.install(app)
    app.include_router(query.router)
    app.include_router(sources.router)

    @app.middleware("http")
    async def judged(request: Request, answer: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        request.scope[ACCESS] = access
        return await answer(request)

    settings = Settings(serve_definitions=definitions, serve_source_locations=locations)
    parts = {"engine": home.engine, "readings": home.core, "settings": settings, "statements": StatementRunner(8)}
    app.state.service = SimpleNamespace(**parts)
    return Client(app)


ADMIN = unlimited("admin")


def run(client: Client, sql: str) -> tuple[int, Any]:
    answer = client.post("/v1/query", json={"sql": sql})
    return answer.status_code, answer.json()


def test_a_source_is_made_by_a_statement_as_by_its_route(home: BareHome, tmp_path: Path) -> None:
    create = f"CREATE SOURCE s INTO t FROM FILES '{tmp_path}'"
    status, told = run(client_of(home, ADMIN), create)
    assert (status, told) == (200, {"epoch": home.epoch})
    assert list(home.core.catalog.sources) == ["s"]
    again = f"CREATE SOURCE IF NOT EXISTS s INTO t FROM FILES '{tmp_path}'"
    assert run(client_of(home, ADMIN), again)[0] == 200
    home.execute("DROP SOURCE s")
    reader = Access("somebody", (read_grant("read:t"),))
    for client, code in (
        (client_of(home, reader), "forbidden"),
        (client_of(home, ADMIN, definitions=False), "definitions_refused"),
        (client_of(home, ADMIN, locations=("/elsewhere",)), "location_refused"),
    ):
        status, told = run(client, create)
        assert (status, told["code"]) == (403, code)
    status, told = run(client_of(home, ADMIN), "CREATE SOURCE s INTO t FROM PYTHON 'json:loads'")
    assert (status, told["code"]) == (403, "definitions_refused")
    assert not home.core.catalog.sources


def test_what_is_called_so_already_is_a_conflict(home: BareHome, tmp_path: Path) -> None:
    client = client_of(home, ADMIN)
    sent = {"name": "s", "table": "t", "connector": "files", "location": str(tmp_path)}
    assert client.post("/v1/sources", json=sent).status_code == 201
    assert client.post("/v1/sources", json=sent).status_code == 409
    assert run(client, f"CREATE SOURCE s INTO t FROM FILES '{tmp_path}'")[0] == 409
    assert client.post("/v1/sources", json={**sent, "name": "z", "table": "nothing"}).status_code == 404


def test_a_source_fills_no_view() -> None:
    with pytest.raises(RelationNameError, match="v is a view") as refused:
        table_into(catalog_of(table("t"), view("v", "t")), "v")
    assert problems.status_of(refused.value) == 400


def test_a_table_that_is_not_there_is_made_or_left_to_be_made(home: BareHome) -> None:
    with pytest.raises(RelationNameError) as told:
        home.execute("CREATE SOURCE s INTO tt FROM KAFKA 'localhost:1/shop.t' WITH (format = 'debezium')")
    assert told.value.message == "there is no table tt"
    assert told.value.hint == (
        "write CREATE TABLE tt (...) first; without INTO, tables are made as the records describe them; there is t"
    )
    with pytest.raises(RelationNameError) as told:
        home.execute("CREATE SOURCE s INTO tt FROM FILES '/tmp'")
    assert "without INTO" not in told.value.hint
