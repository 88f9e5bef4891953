"""The parts of the server that need no home: tokens, limits, keys, forms of the answer."""

from __future__ import annotations

import datetime as dt
import io
import json
import socket
import tracemalloc
from concurrent.futures import Future
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fastapi import FastAPI
from pyarrow import csv

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import ChangesRejected, EpochExpired, HeadraceError, QueryError, Rejection, SetupError, SparkLost
from headrace.json_forms import json_rows
from headrace.serving.auth import refuse_open_listening
from headrace.serving.completions import Completions
from headrace.serving.ingress import bad_lines, with_lines
from headrace.serving.limits import REPEAT_BYTES, Pushes, becomes
from headrace.serving.lines import MOST_BAD, BadLine, read_lines
from headrace.serving.problems import Refusal, problem_of, respond, status_of
from headrace.serving.rows import ARROW, CSV, JSON, NDJSON, Result, chosen, written
from headrace.serving.server import Server
from headrace.settings import Settings
from tests.small_engine import Host, table


def test_a_token_lives_as_long_as_its_submission_and_a_while_longer() -> None:
    completions = Completions(kept=2)
    submissions = [Future[Receipt]() for _ in range(4)]
    tokens = [completions.issue(one) for one in submissions]
    assert len(set(tokens)) == 4
    assert [completions.ask(token).state for token in tokens] == ["in progress"] * 4
    submissions[0].set_result(Receipt(7))
    submissions[1].set_exception(QueryError("no"))
    assert completions.ask(tokens[0]).receipt == Receipt(7)
    assert completions.ask(tokens[1]).state == "failed"
    assert problem_of(completions.ask(tokens[1]).error or ValueError()) == problem_of(QueryError("no"))
    submissions[2].set_result(Receipt(8))
    # Two are kept of those that are over; one under way is never forgotten.
    assert [completions.ask(token).state for token in tokens] == ["unknown", "failed", "complete", "in progress"]
    over = Future[Receipt]()
    over.set_result(Receipt(9))
    assert completions.ask(completions.issue(over)).state == "complete"


def test_places_and_room_are_given_back() -> None:
    pushes = Pushes(slots=2, body_bytes=10, room_bytes=15)
    first, second = pushes.enter(), pushes.enter()
    with pytest.raises(Refusal) as full:
        pushes.enter()
    assert (full.value.status, full.value.headers["Retry-After"]) == (429, "1")
    first.grow(10)
    with pytest.raises(Refusal) as large:
        first.grow(1)
    assert large.value.status == 413
    with pytest.raises(Refusal) as crowded:
        second.grow(6)
    assert crowded.value.status == 429
    first.release()
    first.release()
    second.grow(6)
    assert pushes.under_way == 1
    second.release()
    assert pushes.under_way == 0


def test_a_body_counts_as_what_it_becomes() -> None:
    pushes = Pushes(slots=3, body_bytes=8_000, room_bytes=20_000)
    first = pushes.enter()
    first.grow(2_000)
    with pytest.raises(Refusal) as dense:
        first.become(20_001)
    assert (dense.value.status, dense.value.code) == (413, "too_large")
    first.become(20_000)
    second = pushes.enter()
    with pytest.raises(Refusal) as full:
        second.grow(1)
    assert full.value.status == 429
    first.release()
    second.grow(100)
    second.become(6_400)
    second.repeat(10)
    third = pushes.enter()
    third.grow(1_000)
    with pytest.raises(Refusal) as beside:
        third.become(20_000 - 6_400 - 10 * REPEAT_BYTES + 1)
    assert beside.value.status == 429
    third.become(20_000 - 6_400 - 10 * REPEAT_BYTES)
    second.release()
    third.release()
    fourth = pushes.enter()
    fourth.grow(8_000)
    fourth.become(20_000)
    fourth.release()
    assert pushes.under_way == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "update_format"),
    [
        (b'{"insert":{"id":%d}}\n', "insert_delete"),
        (b'{"insert":{"id":%d,"n":7}},', "insert_delete"),
        (b'{"id":%d}\n', "raw"),
        (b'{"id":%d},', "raw"),
        (b'{"delete":{"id":%d}}\n', "insert_delete"),
    ],
)
def test_what_a_body_is_counted_as_is_what_it_takes(line: bytes, update_format: Any) -> None:
    lines = b"".join(line % number for number in range(10_000, 20_000))
    body = lines if lines.endswith(b"\n") else b"[" + lines[:-1] + b"]"
    loop = Loop(Host(table("t")))
    loop.submit(Call({"t": [{"insert": {"id": 1}}]}))
    tracemalloc.start()
    try:
        loop.submit(Call({"t": read_lines(body, update_format).changes}))
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.7 * taken < becomes(body) < 3 * taken


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_this_machine_is_served_without_a_key(host: str, loopback: bool) -> None:
    refuse_open_listening(host, ("key",))
    if loopback:
        refuse_open_listening(host, ())
    else:
        with pytest.raises(SetupError, match="API key"):
            refuse_open_listening(host, ())


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/*", CSV),
        ("text/csv, application/json;q=0.5", CSV),
        ("application/json;q=0.5, */*", NDJSON),
        ("application/json;q=0, */*;q=0.1", NDJSON),
        ("APPLICATION/VND.APACHE.ARROW.STREAM", ARROW),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", JSON),
        ("application/json;q=x", None),
        ("image/png", None),
        (";;;,,,", None),
    ],
)
def test_the_form_that_is_preferred(accept: str, media: str | None) -> None:
    if media is None:
        with pytest.raises(Refusal) as refused:
            chosen(accept)
        assert refused.value.status == 406
    else:
        assert chosen(accept) == media


def _table(rows: int = 1) -> pa.Table:
    return pa.table(
        {
            "i": pa.array([2**62] * rows),
            "d": pa.array([Decimal("1.10")] * rows, pa.decimal128(38, 2)),
            "t": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)] * rows, pa.timestamp("us", "UTC")),
            "f": pa.array([float("inf")] * rows),
            "x": pa.array([b"\x00\xff"] * rows),
            "m": pa.array([[("k", Decimal("0.5"))]] * rows, pa.map_(pa.string(), pa.decimal128(3, 1))),
            "n": pa.array([[(1.5, None)]] * rows, pa.map_(pa.float64(), pa.int32())),
            "s": pa.array([None] * rows, pa.string()),
            "v": pa.nulls(rows),
        }
    )


ROW = {
    "i": 2**62,
    "d": "1.10",
    "t": "2026-01-02T03:04:05.000006+00:00",
    "f": "Infinity",
    "x": "AP8=",
    "m": {"k": "0.5"},
    "n": [[1.5, None]],
    "s": None,
    "v": None,
}


def test_values_take_the_form_in_which_they_are_taken() -> None:
    assert json_rows(_table()) == [ROW]
    assert json_rows(_table().slice(0, 0)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [0, 1, 5_000, 12_001])
def test_every_form_has_all_rows(rows: int) -> None:
    result = Result(_table(rows), 7, truncated=True)
    plain = json.loads(b"".join(written(result, JSON)))
    assert (plain["epoch"], plain["truncated"], plain["rows"]) == (7, True, [ROW] * rows)
    assert [json.loads(line) for line in b"".join(written(result, NDJSON)).splitlines()] == [ROW] * rows
    assert pa.ipc.open_stream(b"".join(written(result, ARROW))).read_all().equals(result.table)
    text = b"".join(written(result, CSV))
    if rows:
        read = csv.read_csv(io.BytesIO(text), convert_options=csv.ConvertOptions(strings_can_be_null=True))
        assert read.num_rows == rows
    assert text.startswith(b'"i","d","t","f","x","m","n","s","v"')


def test_columns_of_one_name_have_no_place_in_an_object() -> None:
    twins = Result(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), 1)
    for media in (JSON, NDJSON):
        with pytest.raises(QueryError, match="two columns"):
            written(twins, media)
    assert b"".join(written(twins, CSV)) == b'"a","a"\n1,2\n'


def test_every_error_becomes_a_problem() -> None:
    rejected = ChangesRejected([Rejection("t", i, "why") for i in range(1001)])
    problem = problem_of(rejected)
    assert (status_of(rejected), problem["rejected"], len(problem["rejections"])) == (422, 1001, 1000)
    assert status_of(EpochExpired("x")) == 410
    assert status_of(HeadraceError("x")) == 500
    unforeseen = problem_of(ValueError("a secret"))
    assert unforeseen["code"] == "internal_error"
    assert "secret" not in str(unforeseen)
    answer = respond(Refusal(429, "too_busy", "half a pair: \ud800", headers={"Retry-After": "1"}))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert json.loads(answer.body)["title"] == "half a pair: \ud800"


def test_of_very_many_bad_lines_no_more_are_counted_than_are_looked_for() -> None:
    several = problem_of(bad_lines([BadLine(line, "why") for line in range(1, 30)]))
    assert (several["message"], several["rejected"]) == ("29 changes rejected", 29)
    loop = Loop(Host(table("t"), table("bag", key=())))
    for name, change in (("t", []), ("t", {"insert": {"id": "x"}}), ("bag", {"delete": {"id": 1, "n": 1}})):
        with pytest.raises(ChangesRejected) as told:
            loop.submit(Call({name: [change] * (MOST_BAD + 5_000)}))
        problem = problem_of(with_lines(told.value, [1] * (MOST_BAD + 5_000)))
        assert (problem["message"], problem["rejected"]) == (f"at least {MOST_BAD} changes rejected", MOST_BAD)
    both = problem_of(bad_lines([BadLine(1, "not JSON")] * MOST_BAD + [BadLine(2, "why")] * MOST_BAD))
    assert both["rejected"] == MOST_BAD


def test_only_what_nobody_foresaw_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    lost = SparkLost("Spark has ended", detail="A new one is started.\nat line 2")
    assert lost.transient
    respond(lost)
    ((line, trace),) = [(one.getMessage(), one.exc_info) for one in caplog.records]
    assert ("Spark has ended" in line, "\n" in line, trace) == (True, False, None)
    caplog.clear()
    respond(ValueError("odd"))
    respond(HeadraceError("odd"))
    assert [one.exc_info is not None for one in caplog.records] == [True, True]


def test_a_taken_port_is_told_and_small_packets_are_not_delayed() -> None:
    app = FastAPI()
    app.state.service = SimpleNamespace(settings=Settings())
    server = Server(app, "127.0.0.1", 0)
    with server.bind() as taken:
        port = taken.getsockname()[1]
        assert server.url == f"http://127.0.0.1:{port}"
        # What the event loop goes by when it turns the delay off.
        assert taken.proto == socket.IPPROTO_TCP
        taken.listen()
        with pytest.raises(SetupError, match="cannot listen on"):
            Server(app, "127.0.0.1", port).bind()
