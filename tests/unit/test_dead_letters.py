"""Which dead letters are found, in which order, and how many at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI
from pyspark.sql.types import StructType

from headrace.access.audit import Audit
from headrace.capture.connector import Arrival
from headrace.capture.record import Record
from headrace.catalog.make import make_table
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.home import Home
from headrace.intake.table import TableContract
from headrace.reading.held_rows import HeldRows
from headrace.serving import dead_letters, problems
from headrace.serving.statement_runner import StatementRunner
from headrace.settings import Settings
from headrace.sources import dead_letters as module
from headrace.sources.dead_letters import Filter, count_letters, discard, find_letters
from headrace.sources.intake import Letter, letter_row
from headrace.sources.system_tables import (
    DEAD_LETTERS,
    PROGRESS,
    dead_letters_table,
    fitting_letters,
    progress_table,
)
from headrace.state.state import At
from tests.small_engine import Host
from tests.unit.test_conservation import SOURCE

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def host_with(count: int) -> Any:
    host = Host(progress_table(), dead_letters_table())
    host.catalog = host.catalog.recorded(1, {"sources": [SOURCE]})
    letters = [
        {
            "insert": {
                "id": f"{number:03}",
                "source": "s" if number % 2 else "other",
                "stage": "text" if number % 3 else "view",
                "changes": 1,
                # Several come at one time, and not in the order of their names.
                "arrived_at": BEGIN + timedelta(seconds=(count - number) // 4),
            }
        }
        for number in range(count)
    ]
    Loop(host).submit(Call({DEAD_LETTERS: letters}))  # pyright: ignore[reportArgumentType]
    return host


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in found]


def test_letters_are_found_oldest_first_by_what_is_asked() -> None:
    host = host_with(200)
    everything = find_letters(host, Filter())
    assert ids(everything) == ids(sorted(everything, key=lambda one: (one["arrived_at"], one["id"])))
    assert len(everything) == count_letters(host, Filter()) == 200
    mine = find_letters(host, Filter(source="s", stage="view"))
    assert {(one["source"], one["stage"]) for one in mine} == {("s", "view")}
    assert len(mine) == 33
    some = ["007", "003", "nowhere"]
    assert sorted(ids(find_letters(host, Filter(tuple(some))))) == ["003", "007"]
    many = tuple(f"{number:03}" for number in range(100))
    assert sorted(ids(find_letters(host, Filter(many, source="s")))) == list(many[1::2])
    assert find_letters(host, Filter(())) == []
    assert find_letters(Host(), Filter()) == []  # pyright: ignore[reportArgumentType]


def test_pages_have_each_letter_once() -> None:
    host = host_with(50)
    seen: list[str] = []
    after = None
    while page := find_letters(host, Filter(), after, 7):
        assert len(page) <= 7
        seen += ids(page)
        after = page[-1]["arrived_at"], page[-1]["id"]
    assert seen == ids(find_letters(host, Filter()))


def test_a_letter_is_let_go_once() -> None:
    host = host_with(4)
    loop = Loop(host)
    letters = find_letters(host, Filter(source="s"))
    assert discard(loop, letters).epoch == 2
    assert discard(loop, letters).epoch == 2
    assert ids(find_letters(host, Filter())) == ["002", "000"]
    (progress,) = host.holds(PROGRESS)
    assert progress[:7] == ("s", "{}", 2, 0, 0, 2, 2)


def test_a_page_is_read_in_pieces_and_holds_no_more_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.dead_letters._READ_AT_ONCE", 7)
    host = host_with(100)
    everything = ids(find_letters(host, Filter()))
    assert len(everything) == 100
    read, held = list[int](), list[int]()
    piece, oldest = HeldRows.piece, module._oldest

    def noted(rows: HeldRows, at: At, most: int) -> Any:
        found = piece(rows, at, most)
        read.append(found.rows.num_rows)
        return found

    def looked_at(letters: pa.Table, most: int | None) -> pa.Table:
        held.append(letters.num_rows)
        return oldest(letters, most)

    monkeypatch.setattr(HeldRows, "piece", noted)
    monkeypatch.setattr(module, "_oldest", looked_at)
    assert ids(find_letters(host, Filter(), most=10)) == everything[:10]
    assert (sum(read), max(read)) == (100, 7)
    assert max(held) == 17, "those of a page, and a piece"
    last = find_letters(host, Filter(), most=10)[-1]
    assert ids(find_letters(host, Filter(), (last["arrived_at"], last["id"]), 5)) == everything[10:15]
    assert count_letters(host, Filter(source="s")) == 50


def test_a_letter_keeps_its_key_and_one_of_an_older_home_goes_without() -> None:
    arrival = Arrival(Record(None, b'{"id": 7}', topic="t", offset=3), {})
    row = letter_row("s", Letter(arrival, 0, "t", "contract", "why"), BEGIN, 100)
    assert row["key"] == '{"id": 7}'
    kept: Any = {DEAD_LETTERS: [{"insert": row}, {"delete": {"id": "1"}}]}
    assert fitting_letters(Host(dead_letters_table()).catalog, kept) is kept
    older = dead_letters_table()
    fields = [one for one in older.schema.fields if one.name != "key"]
    table = make_table(TableContract(DEAD_LETTERS, StructType(fields), ("id",)), system=True)
    fitting: Any = fitting_letters(Host(table).catalog, kept)
    assert "key" not in fitting[DEAD_LETTERS][0]["insert"]
    assert fitting[DEAD_LETTERS][1] == {"delete": {"id": "1"}}


def test_what_is_done_with_letters_is_in_the_audit_trail_by_whatever_means(tmp_path: Path) -> None:
    host = host_with(12)
    loop = Loop(host)
    engine = SimpleNamespace(core=host, loop=loop, audit=Audit(tmp_path))
    home: Any = SimpleNamespace(core=host, loop=loop, engine=engine)
    assert Home.dead_letters(home, "list")["count"] == 12
    Home.dead_letters(home, "discard", ids=["000"])
    app = FastAPI()
    problems.install(app)
    app.include_router(dead_letters.router)
    app.state.service = SimpleNamespace(engine=engine, settings=Settings(), statements=StatementRunner(8))

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            asked = {"discard": {"ids": ["001", "002"]}, "replay": {"ids": ["gone"]}, "gone/replay": {}}
            answers = [await client.post(f"/v1/dead-letters/{path}", json=sent) for path, sent in asked.items()]
            answers.append(await client.get("/v1/dead-letters/gone%0A%07"))
            return [one.status_code for one in answers]

    assert asyncio.run(ask()) == [200, 404, 404, 404]
    entries = [(one["what"], one["outcome"]) for one in Audit(tmp_path).entries()]
    assert entries == [
        ("DEAD LETTER ACTION verb=discard", "done"),
        ("DEAD LETTER ACTION verb=discard", "done"),
        ("DEAD LETTER ACTION verb=replay", "name_error"),
        ("DEAD LETTER ACTION verb=replay", "name_error"),
    ]
