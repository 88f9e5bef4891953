from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.hourly import CHUNK_BYTES, Payload, chunks, read_hour, send_together
from headrace.cli.remote import Server
from headrace.errors import SetupError

HOUR = "2025-11-30T00"


def write(data: Path, table: str, content: str) -> None:
    folder = data / "cdc" / table
    folder.mkdir(parents=True)
    (folder / f"{HOUR}.json").write_text(content)


class Recorded(Server):
    """A server that only notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, str]] = []

    def post(self, path: str, body: bytes, *, content_type: str, key: str) -> dict[str, int]:
        self.sent.append((body, key))
        return {"epoch": len(self.sent)}


def test_blank_lines_are_no_changes(tmp_path: Path) -> None:
    write(tmp_path, "orders", '{"insert":{}}\n\n{"delete":{}}\r\n  \n')
    (payload,) = read_hour(tmp_path, HOUR)
    assert (payload.table, payload.rows) == ("bronze_orders", 2)


def test_a_file_that_is_there_and_empty_is_not_missing(tmp_path: Path) -> None:
    write(tmp_path, "orders", "")
    (payload,) = read_hour(tmp_path, HOUR)
    assert payload.rows == 0
    with pytest.raises(SetupError, match="there are no changes for 2025-11-30T01"):
        read_hour(tmp_path, "2025-11-30T01")


def test_lines_are_put_together_as_they_are() -> None:
    server = Recorded()
    first = Payload("bronze_orders", Path("a"), (b'{"insert":{"n":1.10}}', b'{"delete":{"n":2}}'), 40)
    second = Payload("bronze_order_items", Path("b"), (), 0)
    assert send_together(server, HOUR, [first, second]) == 1
    (body, _) = server.sent[0]
    assert json.loads(body) == {
        "bronze_orders": [{"insert": {"n": 1.1}}, {"delete": {"n": 2}}],
        "bronze_order_items": [],
    }
    assert b"1.10" in body


def test_the_key_is_made_of_the_hour_and_the_content() -> None:
    server = Recorded()
    one, other = (Payload("bronze_orders", Path("a"), lines, 1) for lines in ((b"{}",), (b"{ }",)))
    for hour, payload in ((HOUR, one), (HOUR, one), (HOUR, other), ("2025-11-30T01", one)):
        send_together(server, hour, [payload])
    keys = [key for _, key in server.sent]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert all(len(key) <= 200 for key in keys)


@pytest.mark.parametrize("sizes", [[], [10], [CHUNK_BYTES * 2], [400_000] * 5, [CHUNK_BYTES - 1, 1, CHUNK_BYTES, 5]])
def test_chunks_keep_the_order_and_the_bound(sizes: list[int]) -> None:
    lines = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    parts = list(chunks(lines))
    assert [line for part in parts for line in part] == lines
    for part in parts:
        assert len(part) <= 1 or len(b"\n".join(part)) < CHUNK_BYTES
