"""Where in its database a change comes from, as the source block of Debezium's connectors tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from headrace.capture.exact_json import json_text, read_json
from headrace.capture.messages import Origin, Position, Transaction, Undecodable
from headrace.intake.reasons import shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"\d{1,30}", re.ASCII)
_HEX_PARTS = re.compile(r"[0-9a-fA-F]{1,16}(?::[0-9a-fA-F]{1,16})*", re.ASCII)
FILE_NUMBER = re.compile(r"\.(\d{1,18})$", re.ASCII)
# A block may hold text of any length; nothing of a position needs more than this.
MOST_TEXT = 4_000


def origin_of(payload: Mapping[str, Any]) -> Origin:
    """What an envelope tells of its origin; what it does not tell, or not as expected, is left empty."""
    source = payload.get("source")
    if source is None:
        return Origin(transaction=transaction_of(payload.get("transaction")))
    if not isinstance(source, dict):
        raise Undecodable(f"the source block is no object, but {shown(source)}")
    block = cast("dict[str, Any]", source)
    connector = text(block.get("connector"))
    position = _POSITIONS.get(connector, _no_position)(block)
    names = [text(block.get(name)) for name in ("db", "schema", "table", "collection")]
    return Origin(
        connector,
        ".".join(name for name in names if name),
        position,
        moment(block),
        transaction_of(payload.get("transaction")) or _transaction_of_source(block, connector),
        is_snapshot(block.get("snapshot")),
        text(block.get("name")),
    )


def transaction_of(block: Any) -> Transaction | None:
    """The transaction that the block of a change names, if it names one."""
    if block is None:
        return None
    if not isinstance(block, dict):
        raise Undecodable(f"the transaction block is no object, but {shown(block)}")
    content = cast("dict[str, Any]", block)
    name = text(content.get("id"))
    if not name:
        return None
    return Transaction(name, number(content.get("total_order")), number(content.get("data_collection_order")))


def moment(block: Mapping[str, Any]) -> datetime | None:
    """The time of a block, as finely as it tells; none if it tells none that Python can hold."""
    for name, many, of_micro in (("ts_ns", 1, 1000), ("ts_us", 1, 1), ("ts_ms", 1000, 1)):
        count = number(block.get(name))
        if count is not None:
            try:
                return _EPOCH + timedelta(microseconds=count * many // of_micro)
            except OverflowError:
                return None
    return None


def number(value: Any) -> int | None:
    """A whole number, which some converters write as text."""
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= 30 and value.removeprefix("-").isascii():
        return int(value) if value.removeprefix("-").isdecimal() else None
    return None


def text(value: Any) -> str:
    """A name or a number as text; nothing where there is none."""
    return str(value)[:MOST_TEXT] if type(value) is str or type(value) is int else ""


def is_snapshot(value: Any) -> bool:
    """Whether the word of a block tells that its row was read, and not logged."""
    # "first", "last" and their kin are rows of a snapshot too; "incremental" ones come while changes go on.
    return value is True or (type(value) is str and value.lower() not in ("", "false"))


def _transaction_of_source(block: Mapping[str, Any], connector: str) -> Transaction | None:
    name = text(block.get("gtid" if connector in ("mysql", "mariadb") else "txId"))
    return Transaction(name) if name else None


def _postgresql(block: Mapping[str, Any]) -> Position:
    """The last commit before the change, and the change itself: the log of a transaction lies before that of another
    which commits earlier, so that the change alone would be out of order."""
    lsn = number(block.get("lsn"))
    sequence = block.get("sequence")
    if type(sequence) is str and len(sequence) <= MOST_TEXT:
        try:
            parts = read_json(sequence)
        except Undecodable:
            parts = None
        if isinstance(parts, list) and len(cast("list[Any]", parts)) == 2:
            commit, change = (number(part) for part in cast("list[Any]", parts))
            if change is not None:
                return Position(lsn_text(change), (commit or 0, change))
    return Position() if lsn is None else Position(lsn_text(lsn), (lsn,))


def lsn_text(value: int) -> str:
    """A place in the log of PostgreSQL, as its people write it."""
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}" if 0 <= value < 1 << 64 else str(value)


def _mysql(block: Mapping[str, Any]) -> Position:
    file, at, row = text(block.get("file")), number(block.get("pos")), number(block.get("row")) or 0
    if not file or at is None:
        return Position()
    numbered = FILE_NUMBER.search(file)
    order = (int(numbered[1]), at, row) if numbered else ()
    return Position(f"{file}:{at}:{row}", order)


def _sqlserver(block: Mapping[str, Any]) -> Position:
    commit, change = text(block.get("commit_lsn")), text(block.get("change_lsn"))
    serial = number(block.get("event_serial_no")) or 0
    if not commit:
        return Position()
    order = (*_hex_parts(commit), *_hex_parts(change or "0:0:0"), serial)
    return Position(f"{commit} {change} {serial}".replace("  ", " "), order)


def _hex_parts(value: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in value.split(":")) if _HEX_PARTS.fullmatch(value) else ()


def _oracle(block: Mapping[str, Any]) -> Position:
    commit, change = text(block.get("commit_scn")), text(block.get("scn"))
    if not commit and not change:
        return Position()
    # Of several redo threads each has its own commit; the newest counts.
    commits = [int(found[0]) for part in commit.split(",") if (found := _NUMBER.match(part))]
    numbers = (max(commits, default=0), number(change) or 0, number(block.get("ssn")) or 0)
    return Position(f"{commit} {change}".strip(), numbers)


def _mongodb(block: Mapping[str, Any]) -> Position:
    at, order = number(block.get("ts_ms")), number(block.get("ord"))
    if at is None or order is None:
        return Position()
    return Position(f"{at // 1000}:{order}", (at // 1000, order, number(block.get("tord")) or 0))


def _no_position(block: Mapping[str, Any]) -> Position:
    position = block.get("pos")
    return Position(text(position) or (json_text(position)[:MOST_TEXT] if isinstance(position, dict) else ""))


_POSITIONS: dict[str, Callable[[Mapping[str, Any]], Position]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sqlserver,
    "oracle": _oracle,
    "mongodb": _mongodb,
}
