"""One question, answered from the home's state or from a table of PostgreSQL: rows, cursors and tags of one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StringType

from headrace.json_forms import json_rows
from headrace.reading.access import Access
from headrace.reading.following import Newest
from headrace.reading.readings import Readings
from headrace.serving.data.answers import Freshness, entity_tag, headers_of, is_known
from headrace.serving.data.cursors import question_of, read_cursor, written_cursor
from headrace.serving.data.direct import Direct
from headrace.serving.data.parameters import Asked, access_of
from headrace.serving.data.postgres import FeedMark, Tables
from headrace.serving.data.shown import Shown
from headrace.serving.data.tables import ServingTable


@dataclass(frozen=True)
class Question:
    """What is asked of a relation, in which form, and which answers the sender has already."""

    shown: Shown
    asked: Asked
    newest: Newest
    form: str
    known_tags: str | None


def _no_cursor(_: int) -> str:
    raise AssertionError("an answer without rows has no cursor")


@dataclass(frozen=True)
class Answer:
    """Rows as JSON takes them, or that what the sender has still holds."""

    epoch: int
    headers: dict[str, str]
    rows: Sequence[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    more: bool = False
    # Of the row at an index, what leads on behind it.
    cursor: Callable[[int], str] = _no_cursor
    unchanged: bool = False


async def from_state(direct: Direct, question: Question, scan_rows: int) -> Answer:
    """The answer of the newest epoch."""
    shown, asked, newest = question.shown, question.asked, question.newest
    assert newest.content is not None
    access = access_of(shown, asked, newest.content.size <= scan_rows)
    freshness = Freshness(newest.epoch, (newest.changed_at,))
    tag = entity_tag(shown, asked, freshness, "state", question.form)
    headers = headers_of(freshness, tag)
    if is_known(question.known_tags, tag):
        return Answer(freshness.epoch, headers, unchanged=True)
    after = None
    if asked.cursor:
        after = read_cursor(asked.cursor, shown, access, _name(shown, asked, access, "state"))
    page = await direct.page(newest.content, shown, asked, access, after)
    return Answer(
        freshness.epoch,
        headers,
        json_rows(page.rows),
        page.more,
        lambda index: written_cursor(page.position(index), _name(shown, asked, access, "state")),
    )


async def from_table(tables: Tables, table: ServingTable, question: Question, readings: Readings) -> Answer | None:
    """Return the answer of a table that a changefeed writes; None if the table cannot give it."""
    shown, asked = question.shown, question.asked
    way = tables.way(table, shown, asked)
    if way is None:
        return None
    if question.known_tags:
        mark = await tables.mark(table)
        if mark is None:
            return None
        headers, tag = await _headers(tables, table, question, readings, mark)
        if is_known(question.known_tags, tag):
            return Answer(mark.epoch, headers, unchanged=True)
    after = None
    if asked.cursor:
        after = read_cursor(asked.cursor, shown, way.access, _name(shown, asked, way.access, "table"))
    page = await tables.page(way, asked, after)
    if page is None:
        return None
    mark = page.mark
    headers, _ = await _headers(tables, table, question, readings, mark)
    return Answer(
        mark.epoch,
        headers,
        page.rows,
        page.more,
        lambda index: written_cursor(way.position(page.found[index]), _name(shown, asked, way.access, "table")),
    )


async def _headers(
    tables: Tables, table: ServingTable, question: Question, readings: Readings, mark: FeedMark
) -> tuple[dict[str, str], str]:
    """Return the headers of an answer from a table, and its tag, which changes with the table's rows."""
    parked = await tables.undelivered.parked(readings, table.feed_id)
    lag = await tables.undelivered.lag(readings, question.newest, question.shown.name, mark.epoch)
    # A parked event that is delivered after all has no new number.
    freshness = Freshness(mark.epoch, (mark.sequence, mark.version, parked.count, parked.digest), lag, parked.count)
    tag = entity_tag(question.shown, question.asked, freshness, table.feed_id, question.form)
    return headers_of(freshness, tag), tag


def _name(shown: Shown, asked: Asked, access: Access, place: str) -> str:
    """What a cursor is good for: either place, but where rows that are equal in the order are told apart otherwise."""
    texts = any(isinstance(shown.kinds[one.name], StringType) for one in access.order)
    return question_of(shown, asked, access, place if texts or not shown.keyed else "")
