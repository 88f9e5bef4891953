"""What a server and its query processes tell each other arrives as it was sent, and nothing else is believed."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DecimalType, LongType, StringType, StructField, StructType

from headrace.errors import QueryError, StatementError
from headrace.ledger.written import Part
from headrace.query_processes.error_forms import error_from_json, error_to_json
from headrace.query_processes.question import Question, QuestionReader, QuestionWriter
from headrace.query_processes.wire import Message, WireBroken, receive, send, to_bytes, to_table
from headrace.reading.files import File
from headrace.reading.frames import Content
from headrace.sql.made_query import Piece
from headrace.sql.syntax import Expression

ONE = StructType([StructField("a", LongType())])


def test_what_is_told_travels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = QuestionWriter(), QuestionReader()
    rows = pa.table({"c0": pa.array(range(1000), pa.int64())})
    gone = pa.table({"low": [1], "high": [2]})
    folder = File(Path("/b"), weighted=True, parts=(Part(Path("/b/part"), 7, "digest", 9),))
    content = Content((File(Path("/a.parquet")), folder), gone, rows, File(Path("/rest")))
    monkeypatch.setattr(Content, "size", 1)
    with writer.writing(Question("rows", "SELECT 1", {"t": (content, ONE)}, 3, 4, 10)) as first:
        pass
    with writer.writing(Question("plan", "SELECT 2", {"u": (content, ONE)})) as again:
        pass
    assert len(first.parts) == 2
    assert not again.parts
    question = reader.read(first)
    assert (question.kind, question.sql, question.line, question.column, question.rows) == (
        "rows",
        "SELECT 1",
        3,
        4,
        10,
    )
    found, schema = question.relations["t"]
    assert (found.files, found.rest, schema) == (content.files, content.rest, ONE)
    assert found.rows.equals(rows)
    assert found.gone is not None
    assert found.gone.equals(gone)
    assert reader.read(again).relations["u"][0] is found


def test_what_a_change_asks_travels_whole() -> None:
    pieces = (Piece(2, Expression("a +\n1", 7, 9)), Piece(5, Expression("a = 'ä'", 8, 1)))
    types = (DecimalType(10, 2), ArrayType(StringType(), True))
    asked = Question("changes", "SELECT 1", {}, 3, 4, None, types, pieces, ("a", "ä b"))
    over, other = socket.socketpair()
    with over, other, QuestionWriter().writing(asked) as message:
        send(over, message)
        assert QuestionReader().read(receive(other, 0)) == asked


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">IQ", 2**31, 0),
        struct.pack(">IQ", 2, 2**40) + b"{}",
        struct.pack(">IQ", 2, 0) + b"{}",
        struct.pack(">IQ", 2, 0) + b"[]",
        struct.pack(">IQ", 13, 5) + b'{"parts":[4]}',
        struct.pack(">IQ", 14, 0) + b'{"parts":[-4]}',
        struct.pack(">IQ", 5, 0) + b"\xff\xff\xff\xff\xff",
        struct.pack(">IQ", 5, 0) + b"{",
        b"\0\0",
    ],
)
def test_a_message_that_is_none_breaks_the_wire(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(WireBroken):
            receive(ours, 1000)


def test_messages_arrive_as_they_were_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        parts = [b"", os.urandom(100_000), b"x"]
        sending = threading.Thread(target=send, args=(ours, Message({"ask": 1, "sql": "ü\0"}, parts)))
        sending.start()
        message = receive(theirs, 200_000)
        sending.join()
        assert (message.head["sql"], message.parts) == ("ü\0", parts)
    table = pa.table({"a": [1, None]})
    assert to_table(to_bytes(table)).equals(table)
    with pytest.raises(WireBroken):
        to_table(b"no stream")


def test_errors_come_out_as_they_went_in() -> None:
    sent = StatementError("it cannot be read", detail="Here.", hint="mend it", line=2, column=7)
    found = error_from_json(error_to_json(sent))
    assert (type(found), str(found), found.line, found.column) == (StatementError, str(sent), 2, 7)
    assert type(error_from_json({"code": "owner_lost", "message": "no"})) is QueryError
