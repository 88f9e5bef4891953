"""Change streams over relations without Spark: what they say when a relation moves, is replaced or goes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import LedgerError
from headrace.serving import changes as route
from headrace.serving.feldera import listening
from headrace.serving.feldera.pipeline_status import PipelineStatus
from headrace.serving.problems import Refusal
from headrace.serving.shared import Shared
from headrace.serving.streams import Streams
from headrace.state.delta import consolidate, weights_of
from tests.costs import cost_of
from tests.small_relations import SmallRelations

PATIENCE = 180


class Server:
    """The part of a server that streams need."""

    def __init__(self, path: Path) -> None:
        self.home = SmallRelations(path)
        self.streams = Streams(self.home, 200)  # pyright: ignore[reportArgumentType]
        self.settings = SimpleNamespace(serve_keep_alive=timedelta(seconds=60))
        self.hr = self.home

    def listen(self, name: str, after: int | None = None) -> AsyncGenerator[bytes, None]:
        return route._events(self, self.streams.enter(), self.home.following.begin(name, after))  # pyright: ignore[reportArgumentType]

    def listen_as_feldera(self, name: str, after: int | None = None) -> AsyncGenerator[bytes, None]:
        position = self.home.following.begin(name, after)
        return listening.follow(self, self.streams.enter(), PipelineStatus("home"), position)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    served = Server(tmp_path / "home")
    served.home.define("t", "id", "n")
    yield served
    served.streams.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(bounded())


async def next_event(stream: AsyncGenerator[bytes, None]) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for line in (await anext(stream)).decode().splitlines():
        name, _, value = line.partition(": ")
        if name:
            event[name] = json.loads(value) if name == "data" else value
    return event


def test_who_has_caught_up_hears_of_a_drop_and_no_more(server: Server) -> None:
    async def work() -> None:
        stream = server.listen("t", 1)
        waiting = asyncio.ensure_future(next_event(stream))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        server.home.drop("t")
        event = await waiting
        assert event["event"] == "problem"
        assert (event["data"]["code"], event["data"]["message"]) == ("name_error", "t was dropped")
        assert "id" not in event
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(work)


def test_a_reset_comes_with_its_columns_and_content_and_has_no_id_before_its_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "_ROWS", 2)

    async def work() -> None:
        stream = server.listen("t", 1)
        server.home.change("t", [(1, 10)])
        assert (await next_event(stream))["id"] == "2"
        server.home.define("t", "n", key=(), rows=[(i,) for i in range(5)])
        reset, *pieces = [await next_event(stream) for _ in range(4)]
        assert reset == {"event": "reset", "data": {"epoch": 3, "columns": [{"name": "n", "type": "bigint"}]}}
        assert [(one["event"], len(one["data"]["rows"]), one["data"]["last"], one.get("id")) for one in pieces] == [
            ("snapshot", 2, False, None),
            ("snapshot", 2, False, None),
            ("snapshot", 1, True, "3"),
        ]
        server.home.change("t", [(9,)])
        assert (await next_event(stream))["data"]["changes"] == [{"_change_type": "insert", "n": 9}]
        # Who broke off within the pieces still has the id from before them.
        again = server.listen("t", 2)
        assert (await next_event(again))["event"] == "reset"

    run(work)


def test_a_row_that_is_there_often_is_told_as_it_is_read(server: Server) -> None:
    def tell(name: str, weight: int) -> None:
        server.home.define(name, "id", "n")
        store = server.home.tables[name].store
        store.apply(consolidate(pa.table([[1], [10]], schema=store.schema), weights_of([weight])))

        async def work() -> None:
            stream = server.listen(name)
            for _ in range(3):
                event = await next_event(stream)
                assert (event["event"], event["data"]["last"]) == ("snapshot", False)
                assert event["data"]["rows"] == [{"id": 1, "n": 10}] * 1000
            chunk = json.loads(await anext(server.listen_as_feldera(name)))
            assert len(chunk["json_data"]) == listening.ROWS_IN_CHUNK

        run(work)

    usual = cost_of(lambda: tell("seldom", 2 * listening.ROWS_IN_CHUNK + 10_000), 1, time.process_time)
    assert cost_of(lambda: tell("often", 50_000_000), 1, time.process_time) < 10 * usual


def test_a_hundred_listeners_cost_one_reading_and_one_text(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    read: list[int] = []
    json_rows, step = route.json_rows, server.home.following.step
    monkeypatch.setattr(route, "json_rows", lambda rows: written.append(rows.num_rows) or json_rows(rows))
    monkeypatch.setattr(server.home.following, "step", lambda position: read.append(position.epoch) or step(position))

    async def work() -> None:
        streams = [server.listen("t", 1) for _ in range(100)]
        for epoch in range(2, 12):
            waiting = [asyncio.ensure_future(next_event(one)) for one in streams]
            while len(server.streams._moved._waiters) < 100:  # pyright: ignore
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.home.change, "t", [(epoch, epoch)])
            events = await asyncio.gather(*waiting)
            assert [event["id"] for event in events] == [str(epoch)] * 100
        late = server.listen("t", 1)
        assert [(await next_event(late))["id"] for _ in range(10)] == [str(epoch) for epoch in range(2, 12)]

    run(work)
    assert written == [1] * 10
    # Once before each wait and once after each commit, and once for who came late.
    assert len(read) <= 2 * 10 + 2


def test_what_cannot_be_written_is_told_and_the_position_stays(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    server.home.change("t", [(1, 10)])
    with monkeypatch.context() as patched:
        patched.setattr(route, "json_rows", refuse)
        patched.setattr(listening, "json_rows", refuse)

        async def work() -> None:
            stream = server.listen("t", 1)
            event = await next_event(stream)
            assert (event["event"], event["data"]["code"]) == ("problem", "internal_error")
            assert "id" not in event
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            chunks = [json.loads(one) async for one in server.listen_as_feldera("t", 1)]
            assert [one.get("processed_steps") for one in chunks] == [1, None]
            assert (chunks[1]["error_code"], "json_data" in chunks[1]) == ("internal_error", False)

        run(work)

    async def mended() -> None:
        assert (await next_event(server.listen("t", 1)))["id"] == "2"

    run(mended)


def test_an_expired_epoch_is_a_problem(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.home.change("t", [(1, 10)])

    async def work() -> None:
        stream = server.listen("t", 1)
        monkeypatch.setitem(server.home.ledger._folder.numbers, "headrace-oldest", 2)
        event = await next_event(stream)
        assert (event["event"], event["data"]["status"]) == ("problem", 410)

    run(work)


def test_a_stream_tells_how_far_it_is_while_others_are_busy(server: Server) -> None:
    server.settings.serve_keep_alive = timedelta(seconds=0.2)
    server.home.define("busy", "id")
    done = threading.Event()

    def keep_busy() -> None:
        number = 0
        while not done.wait(0.01):
            number += 1
            server.home.change("busy", [(number,)])

    async def work() -> None:
        stream = server.listen("t", 2)
        epochs: list[int] = []
        while len(epochs) < 3:
            event = await next_event(stream)
            # It is alive where nothing was committed meanwhile.
            if event:
                assert event["event"] == "progress"
                epochs.append(int(event["id"]))
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 2

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        run(work)
    finally:
        done.set()
        busy.join()


def test_streams_end_with_the_home(server: Server) -> None:
    async def work() -> None:
        streams = [server.listen("t", 1), server.listen_as_feldera("t", 1)]
        assert json.loads(await anext(streams[1])) == {"sequence_number": 1, "processed_steps": 1}

        async def rest(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
            return [one async for one in stream]

        waiting = [asyncio.ensure_future(rest(one)) for one in streams]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(server.home.following.end)
        assert [await one for one in waiting] == [[], []]

    run(work)


def test_a_home_that_breaks_says_so_to_all_who_listen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise LedgerError(f"the home is broken, {name} and all")

    async def work() -> None:
        stream = server.listen("t", 1)
        waiting = asyncio.ensure_future(next_event(stream))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(server.home.following, "_newest", refuse)
        await asyncio.to_thread(server.home.following.end)
        event = await waiting
        assert (event["event"], event["data"]["message"]) == ("problem", "the home is broken, t and all")

    run(work)


def test_a_listener_of_the_feldera_client_is_told_why_its_stream_ends(server: Server) -> None:
    server.home.define("v", "id")

    async def heard(name: str, after: int | None, then: Callable[[], object]) -> list[dict[str, Any]]:
        stream = server.listen_as_feldera(name, after)
        first = json.loads(await anext(stream))
        then()
        return [first, *[json.loads(one) async for one in stream]]

    async def work() -> None:
        server.home.change("t", [(1, 10)])

        def alter() -> None:
            server.home.change("t", [(1, 11), (2, 20)], [(1, 10)])
            server.home.alter("t", [0], "id", rows=[(1,), (2,)])

        altered = await heard("t", 3, alter)
        assert [one.get("processed_steps") for one in altered] == [3, None]
        assert (altered[-1]["error_code"], altered[-1]["sequence_number"]) == ("view_error", 2)
        assert altered[-1]["message"].startswith("t was defined anew: ")
        dropped = await heard("v", 3, lambda: server.home.drop("v"))
        assert dropped[-1]["message"] == "v was dropped: That was epoch 6."
        whole = server.listen_as_feldera("t")
        assert json.loads(await anext(whole))["json_data"] == [{"insert": {"id": 1}}, {"insert": {"id": 2}}]
        assert json.loads(await anext(whole)) == {"sequence_number": 2, "processed_steps": 6}

    run(work)


def test_a_stream_that_waits_for_a_commit_does_not_look_for_it(server: Server) -> None:
    looks: list[int] = []

    class Readings:
        following = server.home.following

        @property
        def epoch(self) -> int:
            looks.append(server.home.epoch)
            return looks[-1]

    server.streams._readings = Readings()  # pyright: ignore

    async def work() -> None:
        stream = server.listen("t", 1)
        for number in range(5):
            waiting = asyncio.ensure_future(next_event(stream))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.home.change, "t", [(number, number)])
            await waiting

    run(work)
    # Once before each wait, once when it is over, and once for its result.
    assert len(looks) <= 5 * 4


def test_texts_that_have_no_room_are_written_again() -> None:
    async def inline(work: Callable[[], Any]) -> Any:
        return work()

    async def work() -> None:
        shared, written = Shared(inline, 10), list[str]()

        def text(name: str) -> Callable[[], bytes]:
            return lambda: written.append(name) or name.encode() * 4

        for name in ("a", "b", "a", "c", "b", "a"):
            assert await shared.text(name, text(name)) == name.encode() * 4
        assert written == ["a", "b", "c", "b", "a"]

    run(work)


def test_who_hangs_up_does_not_take_the_work_from_the_others() -> None:
    async def slowly(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0.05)
        return work()

    def fail() -> bytes:
        raise Refusal(400, "no", "no")

    async def work() -> None:
        shared = Shared(slowly, 10)
        first, second = (asyncio.ensure_future(shared.text("a", lambda: b"a")) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        assert await second == b"a"
        failing = [asyncio.ensure_future(shared.text("b", fail)) for _ in range(2)]
        assert [type(one) for one in await asyncio.gather(*failing, return_exceptions=True)] == [Refusal, Refusal]
        assert await shared.text("b", lambda: b"b") == b"b"

    run(work)
