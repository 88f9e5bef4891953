"""The public feldera client against a home: its own code, over a real socket, with only the address changed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import headrace
from tests.e2e.conftest import emptied, running
from tests.relation_rows import rows_of
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:feldera", "ignore::ResourceWarning")

TABLES = """
CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, city STRING, amount DECIMAL(12,2), ordered_at TIMESTAMP, day DATE);
CREATE TABLE readings (id INT PRIMARY KEY, value DOUBLE, ok BOOLEAN, tags ARRAY<STRING>);
CREATE TABLE log (line STRING);
CREATE VIEW revenue AS SELECT city, count(*) AS orders, sum(amount) AS revenue, max(ordered_at) AS last_at
    FROM orders GROUP BY city;
CREATE VIEW inverse AS SELECT id, 1 / value AS inverse FROM readings;
"""
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "use-the-feldera-client.md"
ORDER = {"id": 1, "city": "Oslo", "amount": "12.50", "ordered_at": "2025-11-30T00:21:44.095001Z", "day": "2025-11-30"}


@pytest.fixture(scope="module")
def hr(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[headrace.Headrace]:
    with headrace.open(tmp_path_factory.mktemp("feldera") / "shop", spark=spark) as home:
        home.execute(TABLES)
        yield home


@pytest.fixture(scope="module")
def url(hr: headrace.Headrace) -> Iterator[str]:
    # The first query of a cold Spark may take long where others compute.
    with running(hr, serve_query_time=timedelta(minutes=9)) as server:
        yield server.url


@pytest.fixture
def pipeline(hr: headrace.Headrace, url: str) -> Any:
    """The pipeline of a script that was written for another server, on empty tables."""
    from feldera import FelderaClient, Pipeline

    emptied(hr, "orders", "readings", "log")
    found = Pipeline.get("ecommerce", FelderaClient(url))
    found.start()
    return found


def changes(*rows: dict[str, Any], kind: str = "insert") -> list[dict[str, Any]]:
    return [{kind: row} for row in rows]


def test_a_script_pushes_waits_queries_and_listens(pipeline: Any) -> None:
    listening = pipeline.listen("revenue")
    other = {**ORDER, "id": 2, "amount": Decimal("0.10"), "ordered_at": "2025-12-01 00:00:00"}
    token = pipeline.input_json("orders", changes(ORDER, other), update_format="insert_delete")

    assert list(pipeline.query("SELECT id, amount, ordered_at, day FROM orders ORDER BY id")) == [
        {"id": 1, "amount": Decimal("12.50"), "ordered_at": "2025-11-30T00:21:44.095001", "day": "2025-11-30"},
        {"id": 2, "amount": Decimal("0.10"), "ordered_at": "2025-12-01T00:00:00", "day": "2025-11-30"},
    ]
    listening.wait_for_token(token, timeout_s=PATIENCE)
    assert listening.to_dict() == [
        {
            "city": "Oslo",
            "orders": 2,
            "revenue": Decimal("12.60"),
            "last_at": pd.Timestamp("2025-12-01"),
            "insert_delete": 1,
        }
    ]

    token = pipeline.input_json("orders", changes({"id": 2}, kind="delete"), update_format="insert_delete")
    listening.wait_for_token(token, timeout_s=PATIENCE)
    heard = listening.to_dict()
    assert [(one["orders"], one["revenue"], one["insert_delete"]) for one in heard] == [
        (2, Decimal("12.60"), -1),
        (1, Decimal("12.50"), 1),
    ]
    assert heard[1]["last_at"] == pd.Timestamp("2025-11-30T00:21:44.095001")
    assert list(pipeline.query("SELECT * FROM revenue")) == [
        {"city": "Oslo", "orders": 1, "revenue": Decimal("12.50"), "last_at": "2025-11-30T00:21:44.095001"}
    ]


def test_the_script_of_the_guide_runs_with_only_its_address_changed(pipeline: Any, url: str) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert script.count("http://localhost:8080") == 1
    told: list[Any] = []
    exec(script.replace("http://localhost:8080", url), {"print": told.append})
    assert told == [[{"city": "Oslo", "revenue": Decimal("17.50")}], [("Oslo", Decimal("17.50"), 1)]]


def test_tokens_tell_when_a_push_is_through(pipeline: Any, hr: headrace.Headrace) -> None:
    from feldera.enums import CompletionTokenStatus
    from feldera.rest.errors import FelderaAPIError

    tokens = [
        pipeline.input_json("orders", changes({**ORDER, "id": i}), update_format="insert_delete", wait=False)
        for i in range(5)
    ]
    for token in tokens:
        pipeline.wait_for_token(token)
        assert pipeline.completion_token_status(token) == CompletionTokenStatus.COMPLETE
    assert len(rows_of(hr, "orders")) == 5
    assert pipeline.client.completion_status(pipeline.name, tokens[-1])["step"] <= hr.epoch
    with pytest.raises(FelderaAPIError, match="nothing is known of this token"):
        pipeline.completion_token_status("made up")


def test_a_listener_hears_of_epochs_that_leave_its_view_alone(pipeline: Any) -> None:
    listening = pipeline.listen("inverse")
    token = pipeline.input_json("orders", ORDER, wait=False)
    listening.wait_for_token(token, timeout_s=PATIENCE)
    assert listening.to_dict() == []


def test_every_chunk_reaches_a_callback(pipeline: Any) -> None:
    heard: list[tuple[pd.DataFrame, int]] = []
    pipeline.foreach_chunk("orders", lambda rows, number: heard.append((rows, number)))
    for i in range(3):
        pipeline.input_json("orders", {**ORDER, "id": i})
    until(lambda: sum(len(rows) for rows, _ in heard) == 3)
    numbers = [number for _, number in heard]
    assert numbers == sorted(set(numbers))
    assert [int(i) for rows, _ in heard for i in rows["id"]] == [0, 1, 2]


def test_listening_can_begin_with_all_there_is(pipeline: Any) -> None:
    pipeline.input_json("orders", [{**ORDER, "id": i} for i in range(3)])
    stream = pipeline.client.listen_to_pipeline(pipeline.name, "orders", "json", send_snapshot=True)()
    assert next(stream) == {"sequence_number": 0}
    first = next(stream)
    assert sorted(change["insert"]["id"] for change in first["json_data"]) == [0, 1, 2]
    assert first["json_data"][0]["insert"]["amount"] == "12.50"
    begun = next(stream)
    pipeline.input_json("orders", changes({"id": 1}, kind="delete"), update_format="insert_delete")
    then = next(stream)
    assert [list(change) for change in then["json_data"]] == [["delete"]]
    assert next(stream)["processed_steps"] == begun["processed_steps"] + 1


def test_pandas_rows_arrive_exactly(pipeline: Any, hr: headrace.Headrace) -> None:
    rows = pd.DataFrame(
        {
            "id": [1, 2],
            "city": ["Oslo", None],
            "amount": [Decimal("12.50"), None],
            "ordered_at": pd.to_datetime(["2025-11-30T00:21:44.095", None]),
            "day": [date(2025, 11, 30), None],
        }
    )
    assert pipeline.input_pandas("orders", rows) is not None
    found = hr.query("SELECT * FROM orders ORDER BY id").to_pylist()
    assert found[0] == {
        "id": 1,
        "city": "Oslo",
        "amount": Decimal("12.50"),
        "ordered_at": datetime.fromisoformat("2025-11-30T00:21:44.095+00:00"),
        "day": date(2025, 11, 30),
    }
    assert set(found[1].values()) == {2, None}
    with pytest.raises(ValueError, match="does not exist"):
        pipeline.input_pandas("nothing", rows)


@pytest.mark.slow
def test_results_in_every_format(pipeline: Any, tmp_path: Path) -> None:
    pipeline.input_json("orders", [ORDER, {"id": 2}])
    sql = "SELECT id, city, amount, ordered_at, day FROM orders ORDER BY id"
    first = {
        "id": 1,
        "city": "Oslo",
        "amount": Decimal("12.50"),
        "ordered_at": datetime(2025, 11, 30, 0, 21, 44, 95001),
        "day": date(2025, 11, 30),
    }
    assert list(pipeline.query_arrow_dicts(sql)) == [first, {**dict.fromkeys(first), "id": 2}]
    batch = next(iter(pipeline.query_arrow(sql)))
    assert batch.schema.field("amount").type == pa.decimal128(12, 2)
    pipeline.query_parquet(sql, str(tmp_path / "orders"))
    assert parquet.read_table(tmp_path / "orders.parquet").to_pylist()[0] == first
    assert list(pipeline.query_tabular("SELECT id, city, amount FROM orders ORDER BY id")) == [
        "+----+------+--------+",
        "| id | city | amount |",
        "+----+------+--------+",
        "| 1  | Oslo | 12.50  |",
        "| 2  |      |        |",
        "+----+------+--------+",
    ]
    assert pipeline.query_hash(sql) == pipeline.query_hash(sql)
    assert pipeline.query_hash(sql) != pipeline.query_hash(f"{sql} DESC")
    assert list(pipeline.query("SELECT id FROM orders WHERE id > 5")) == []
    assert list(pipeline.query_arrow("SELECT id FROM orders WHERE id > 5")) == []


def test_statements_change_tables_and_are_counted(pipeline: Any) -> None:
    before = pipeline.stats().global_metrics.total_input_records
    pipeline.execute("INSERT INTO orders VALUES (1, 'Oslo', 1.00, TIMESTAMP '2025-11-30 00:00:00', NULL)", wait=True)
    assert list(pipeline.query("INSERT INTO log VALUES ('a'), ('b')", wait=True)) == [{"count": 2}]
    pipeline.input_json("log", [{"line": "c"}])
    pipeline.wait_for_completion(timeout_s=PATIENCE)
    pipeline.wait_for_idle(idle_interval_s=0.2, timeout_s=PATIENCE, poll_interval_s=0.05)
    metrics = pipeline.stats().global_metrics
    assert metrics.total_input_records == metrics.total_completed_records == before + 4
    assert metrics.buffered_input_records == 0
    assert pipeline.is_complete()
    assert 'headrace_changes_total{outcome="applied",table="log"}' in pipeline.metrics()
    assert list(pipeline.query("SELECT count(*) AS n FROM log")) == [{"n": 3}]


def test_the_pipeline_tells_its_tables_and_views(pipeline: Any) -> None:
    from feldera.enums import PipelineStatus, ProgramStatus

    assert {table.name for table in pipeline.tables()} == {"orders", "readings", "log"}
    views = {view.name: view for view in pipeline.views()}
    assert set(views) == {"revenue", "inverse"}
    columns = {field["name"]: field["columntype"] for field in views["revenue"].fields}
    assert columns["revenue"] == {"type": "DECIMAL", "nullable": True, "precision": 22, "scale": 2}
    assert [columns[name]["type"] for name in ("city", "orders", "last_at")] == ["VARCHAR", "BIGINT", "TIMESTAMP"]
    assert pipeline.status() == PipelineStatus.RUNNING
    assert pipeline.program_status() == ProgramStatus.Success
    assert pipeline.errors() == []
    assert pipeline.deployment_error() is None
    assert [type(pipeline).all(pipeline.client)[0].name] == ["shop"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": 1, "amount": "12.505"}, "12.505.*would be rounded to fit DECIMAL"),
        ({"id": "one"}, "expected an integer for BIGINT"),
        ({"city": "Oslo"}, "column id is missing"),
        ({"id": 1, "town": "Oslo"}, "unknown column 'town'"),
        ({"id": 1, "ordered_at": "yesterday"}, "expected an ISO 8601 timestamp"),
    ],
)
def test_a_bad_row_is_the_client_s_exception_with_our_reason(
    pipeline: Any, hr: headrace.Headrace, row: dict[str, Any], reason: str
) -> None:
    from feldera.rest.errors import FelderaAPIError

    # Without waiting for the token: the push itself fails, and the good row beside it is not taken.
    with pytest.raises(FelderaAPIError, match=reason) as raised:
        pipeline.input_json("orders", changes({**ORDER, "id": 7}, row), update_format="insert_delete", wait=False)
    assert raised.value.status_code == 422
    assert raised.value.error_code == "changes_rejected"
    assert raised.value.details["rejected"] == 1
    assert len(rows_of(hr, "orders")) == 0


def test_what_fails_in_the_epoch_is_told_by_its_token(pipeline: Any, hr: headrace.Headrace) -> None:
    from feldera.rest.errors import FelderaAPIError

    with pytest.raises(FelderaAPIError, match="inverse"):
        pipeline.input_json("readings", {"id": 1, "value": 0.0, "ok": True})
    token = pipeline.input_json("log", changes({"line": "x"}, kind="delete"), update_format="insert_delete", wait=False)
    with pytest.raises(FelderaAPIError, match="line 1: "):
        pipeline.wait_for_token(token)
    # The client writes a Decimal as text, whatever the column is.
    pipeline.input_json("readings", {"id": 1, "value": Decimal("0.25"), "ok": True, "tags": ["a", None]})
    assert list(pipeline.query("SELECT * FROM readings")) == [
        {"id": 1, "value": Decimal("0.25"), "ok": True, "tags": ["a", None]}
    ]
    assert rows_of(hr, "inverse") == [{"id": 1, "inverse": 4.0}]


def test_refusals_name_what_is_wrong(pipeline: Any, hr: headrace.Headrace) -> None:
    from feldera.rest.errors import FelderaAPIError

    with pytest.raises(FelderaAPIError, match="there is no table or view order"):
        pipeline.input_json("order", {"id": 1})
    with pytest.raises(FelderaAPIError, match="revenue is a view"):
        pipeline.input_json("revenue", {"city": "Oslo"})
    with pytest.raises(FelderaAPIError):
        list(pipeline.query("SELECT nothing FROM orders"))
    with pytest.raises(FelderaAPIError):
        list(pipeline.query("DROP TABLE orders"))
    with pytest.raises(FelderaAPIError, match="not JSON"):
        pipeline.client.push_to_pipeline(pipeline.name, "orders", "json", '{"id": 1', serialize=False)
    with pytest.raises(FelderaAPIError, match="csv is not offered"):
        pipeline.client.push_to_pipeline(pipeline.name, "orders", "csv", "1,Oslo")
    with pytest.raises(FelderaAPIError, match="is not answered here"):
        pipeline.clear_storage()
    assert rows_of(hr, "orders") == []


def test_a_push_of_nothing_is_a_push(pipeline: Any, hr: headrace.Headrace) -> None:
    pipeline.input_json("orders", [])
    assert rows_of(hr, "orders") == []


def test_paused_and_stopped_hold_until_told_otherwise(pipeline: Any, hr: headrace.Headrace) -> None:
    from feldera.enums import PipelineStatus
    from feldera.rest.errors import FelderaAPIError

    pipeline.pause()
    assert pipeline.status() == PipelineStatus.PAUSED
    with pytest.raises(RuntimeError, match="paused"):
        pipeline.input_json("orders", ORDER)
    with pytest.raises(FelderaAPIError, match="the pipeline is paused"):
        pipeline.client.push_to_pipeline(pipeline.name, "orders", "json", ORDER)
    pipeline.input_json("orders", ORDER, force=True)
    pipeline.resume()
    listening = pipeline.listen("orders")
    pipeline.stop(force=True)
    assert pipeline.status() == PipelineStatus.STOPPED
    until(lambda: listening.ended)
    with pytest.raises(FelderaAPIError, match="the pipeline is stopped"):
        list(pipeline.query("SELECT 1"))
    pipeline.start_paused()
    assert pipeline.status() == PipelineStatus.PAUSED
    heard = pipeline.listen("orders")
    pipeline.resume()
    heard.wait_for_token(pipeline.input_json("orders", {**ORDER, "id": 2}), timeout_s=PATIENCE)
    assert [one["id"] for one in heard.to_dict()] == [2]
    assert len(rows_of(hr, "orders")) == 2


def test_names_and_keys_can_be_asked_for(hr: headrace.Headrace, url: str) -> None:
    from feldera import FelderaClient, Pipeline, PipelineBuilder
    from feldera.enums import PipelineStatus
    from feldera.rest.errors import FelderaAPIError

    limits = {"serve_query_time": timedelta(minutes=9)}
    with running(hr, serve_pipelines=("shop", "till"), api_keys=("a-secret",), **limits) as server:
        address = server.url
        with pytest.raises(FelderaAPIError, match="a valid API key is needed"):
            FelderaClient(address)
        client = FelderaClient(address, api_key="a-secret")
        assert [one.name for one in Pipeline.all(client)] == ["shop", "till"]
        till = Pipeline.get("till", client)
        assert list(till.query("SELECT 1 AS one")) == [{"one": 1}]
        with pytest.raises(FelderaAPIError) as raised:
            Pipeline.get("bank", client)
        assert raised.value.error_code == "UnknownPipelineName"
        till._inner.name = "bank"
        assert till.status() == PipelineStatus.NOT_FOUND
        with pytest.raises(FelderaAPIError, match="defined in SQL"):
            PipelineBuilder(client, "bank", "CREATE TABLE t (i INT)").create()


def test_parallel_pushes_share_epochs(pipeline: Any, hr: headrace.Headrace) -> None:
    before = hr.epoch

    def push(i: int) -> None:
        pipeline.input_json("orders", {**ORDER, "id": i})

    threads = [threading.Thread(target=push, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(pipeline.query("SELECT orders, revenue FROM revenue")) == [{"orders": 16, "revenue": Decimal("200.00")}]
    assert hr.epoch - before < 16


HOSTILE = [
    ("POST", "ingress/orders?array=perhaps", b'{"insert": {"id": 1'),
    ("POST", "ingress/orders", b"\xff\xfe\x00"),
    ("POST", "ingress/orders", b"[" * 100_000),
    ("POST", "ingress/orders?update_format=debezium", b"{}"),
    ("POST", "ingress/orders?json_flavor=snowflake", b"{}"),
    ("POST", "ingress/orders?force=perhaps", b"{}"),
    ("POST", "ingress/orders?connector_metadata=%7B%7D", b"{}"),
    ("POST", "ingress/orders%3B%20DROP%20TABLE%20orders", b"{}"),
    ("POST", "egress/orders%60%20WHERE%201%3D1?send_snapshot=true", None),
    ("POST", "egress/orders?format=csv", None),
    ("GET", "query?sql=SELECT%201%3B%20DROP%20TABLE%20log", None),
    ("GET", "query?sql=DROP%20TABLE%20log", None),
    ("GET", "query?sql=&format=json", None),
    ("GET", "query?format=json", None),
    ("GET", "query?sql=SELECT%201&format=xml", None),
    ("GET", "query?sql=SELECT%20*%20FROM%20parquet.%60/etc/passwd%60&format=json", None),
    ("GET", f"completion_status?token={'x' * 5000}", None),
    ("GET", "metrics?format=json", None),
    ("POST", "start?initial=standby", None),
    ("POST", "start_transaction", None),
    ("DELETE", "", None),
    ("PATCH", "%00", b"{}"),
]


def test_what_a_stranger_sends_is_refused_and_changes_nothing(pipeline: Any, url: str, hr: headrace.Headrace) -> None:
    before = hr.epoch
    for method, path, body in HOSTILE:
        answer = httpx.request(method, f"{url}/v0/pipelines/shop/{path}", content=body, timeout=PATIENCE)
        assert 400 <= answer.status_code < 500, (path, answer.text)
        told = answer.json()
        assert told["message"], path
        assert told["error_code"], path
    assert {table.name for table in pipeline.tables()} == {"orders", "readings", "log"}
    assert hr.epoch == before
