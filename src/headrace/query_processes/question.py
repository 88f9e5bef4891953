"""What a query process is asked: a query, the relations that it may read, and what of it is wanted."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from headrace.ledger.written import Part
from headrace.query_processes.wire import Message, WireBroken, to_bytes, to_table
from headrace.reading.files import File
from headrace.reading.frames import Content
from headrace.sql.made_query import Piece
from headrace.sql.syntax import Expression

Kind = Literal["rows", "plan", "changes"]
_KEPT_BYTES = 64 * 1024 * 1024
_KEPT_COUNT = 256


@dataclass(frozen=True)
class Question:
    """One query over given relations: its rows, Spark's plan of it, or the rows that a statement changes.

    Those are cast to the given types, and their query is made of the pieces of a statement, or is VALUES of columns.
    """

    kind: Kind
    sql: str
    relations: Mapping[str, tuple[Content, StructType]]
    line: int = 1
    column: int = 1
    rows: int | None = None
    types: tuple[DataType, ...] = ()
    pieces: tuple[Piece, ...] = ()
    values: tuple[str, ...] = ()


class QuestionWriter:
    """Writes questions for one query process: what it knows of relations from earlier ones is not sent again."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._known: OrderedDict[tuple[Content, str], tuple[int, int]] = OrderedDict()
        self._bytes = 0

    @contextmanager
    def writing(self, question: Question) -> Generator[Message, None, None]:
        """The question as a message, to be sent inside, one after the other; what was not sent is not known."""
        known, size = self._known.copy(), self._bytes
        try:
            yield self._message(question)
        except BaseException:
            self._known, self._bytes = known, size
            raise

    def _message(self, question: Question) -> Message:
        relations: dict[str, Any] = {}
        parts: list[bytes] = []
        for name, (content, schema) in question.relations.items():
            relations[name] = self._relation(content, schema, parts)
        head = {
            "kind": question.kind,
            "sql": question.sql,
            "line": question.line,
            "column": question.column,
            "rows": question.rows,
            "types": StructType([StructField("", kind) for kind in question.types]).jsonValue(),
            "pieces": [_piece_json(piece) for piece in question.pieces],
            "values": question.values,
            "relations": relations,
            "forget": self._forget(),
        }
        return Message(head, parts)

    def _relation(self, content: Content, schema: StructType, parts: list[bytes]) -> dict[str, Any]:
        key = content, schema.json()
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return {"known": known[0]}
        first = len(parts)
        parts.append(to_bytes(content.rows))
        if content.gone is not None:
            parts.append(to_bytes(content.gone))
        number, size = next(self._numbers), content.size
        self._known[key] = number, size
        self._bytes += size
        return {
            "number": number,
            "schema": schema.jsonValue(),
            "files": [_file_json(file) for file in content.files],
            "rows": first,
            "gone": None if content.gone is None else first + 1,
            "rest": None if content.rest is None else _file_json(content.rest),
        }

    def _forget(self) -> list[int]:
        """What the process need not know any more after this question."""
        forgotten: list[int] = []
        while len(self._known) > 1 and (self._bytes > _KEPT_BYTES or len(self._known) > _KEPT_COUNT):
            _, (number, size) = self._known.popitem(last=False)
            self._bytes -= size
            forgotten.append(number)
        return forgotten


class QuestionReader:
    """Reads questions by the relations that its process was sent before."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Content, StructType]] = {}

    def read(self, message: Message) -> Question:
        """The question of a message."""
        head = message.head
        relations = {name: self._relation(written, message.parts) for name, written in head["relations"].items()}
        for number in head["forget"]:
            self._known.pop(number, None)
        types = tuple(field.dataType for field in StructType.fromJson(head["types"]).fields)
        pieces = tuple(Piece(at, Expression(text, line, column)) for at, text, line, column in head["pieces"])
        line, column, rows = head["line"], head["column"], head["rows"]
        return Question(head["kind"], head["sql"], relations, line, column, rows, types, pieces, tuple(head["values"]))

    def _relation(self, written: Mapping[str, Any], parts: Sequence[bytes]) -> tuple[Content, StructType]:
        if "known" in written:
            return self._known[written["known"]]
        gone: pa.Table | None = None if written["gone"] is None else to_table(parts[written["gone"]]).combine_chunks()
        rest = None if written["rest"] is None else _file_of(written["rest"])
        content = Content(tuple(map(_file_of, written["files"])), gone, to_table(parts[written["rows"]]), rest)
        found = self._known[written["number"]] = content, StructType.fromJson(written["schema"])
        return found


def _piece_json(piece: Piece) -> list[object]:
    expression = piece.expression
    return [piece.line, expression.text, expression.line, expression.column]


def _file_json(file: File) -> list[object]:
    return [str(file.path), file.weighted, [[str(p.file), p.rows, p.digest, p.size] for p in file.parts]]


def _file_of(written: Sequence[Any]) -> File:
    path, weighted, parts = written
    return File(Path(path), weighted, tuple(Part(Path(file), *known) for file, *known in parts))


def answer_rows(message: Message) -> pa.Table:
    """The rows of an answer."""
    if len(message.parts) != 1:
        raise WireBroken("an answer has one part, its rows")
    return to_table(message.parts[0])
