"""What becomes of dead letters: tried again after a fix, or let go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.capture.connector import Arrival
from headrace.capture.record import Record
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import RelationNameError, SourceError, ViewEvaluationError
from headrace.sources.connectors import CONNECTORS
from headrace.sources.intake import Decoded, call_for, decode, payload_bytes
from headrace.sources.running import decoders, progress_of, table_of
from headrace.sources.system_tables import DEAD_LETTERS
from headrace.sql.syntax import DeadLetterAction


def chosen_letters(core: Core, where: str) -> list[dict[str, Any]]:
    """The letters that a condition names, oldest first."""
    relations = core.relations()
    if DEAD_LETTERS not in relations:
        return []
    condition = f" WHERE {where}" if where else ""
    rows = core.sessions.queries.run(f"SELECT * FROM {DEAD_LETTERS}{condition} ORDER BY arrived_at, id", relations)
    return rows.to_pylist()


def act(loop: Loop, statement: DeadLetterAction) -> Receipt:
    """Replay or discard letters; the receipt tells how many were applied, stale or dead again."""
    letters = chosen_letters(loop.core, statement.where)
    return discard(loop, letters) if statement.verb == "discard" else replay(loop, letters)


def discard(loop: Loop, letters: Sequence[Mapping[str, Any]]) -> Receipt:
    """Let go of letters for good."""
    deletes = [{"delete": {"id": one["id"]}} for one in letters]
    return loop.submit(Call({DEAD_LETTERS: deletes} if letters else {}, quiet=not letters))


def replay(loop: Loop, letters: Sequence[Mapping[str, Any]]) -> Receipt:
    """Read letters once more as their sources would, an epoch for each; those refused again stay, with the reason."""
    receipt = Receipt(loop.core.epoch)
    for name in dict.fromkeys(one["source"] for one in letters):
        receipt = _added(receipt, _replay(loop, name, [one for one in letters if one["source"] == name]))
    return receipt


def _replay(loop: Loop, name: str, letters: Sequence[Mapping[str, Any]]) -> Receipt:
    core = loop.core
    source = core.catalog.sources.get(name)
    if source is None:
        raise RelationNameError(
            f"source {name} is gone, and nobody else knows how its letters are read",
            hint="create it again under its name, or DISCARD DEAD LETTERS",
        )
    connector = CONNECTORS.get(source.connector)
    if connector is None:
        raise SourceError(f"source {name} has no connector any more")
    decode_of = decoders(core, source, connector)
    arrivals = [Arrival(_record(one), {}) for one in letters]
    tables = {id(arrival): one["table"] for arrival, one in zip(arrivals, letters, strict=True)}
    decoded = decode(arrivals, lambda one: tables[id(one)] or table_of(core, source, one), decode_of)
    return _taken(loop, name, decoded, letters)


def _taken(loop: Loop, name: str, decoded: Decoded, letters: Sequence[Mapping[str, Any]]) -> Receipt:
    progress = progress_of(loop.core, name)
    call, _ = call_for(name, decoded, progress, raw=False)
    inner = call.after
    assert inner is not None

    def after(verdicts: Any) -> Any:
        kept: dict[str, Any] = dict(inner(verdicts))
        gone = [{"delete": {"id": one["id"]}} for one in letters]
        # Those refused again come after the deletes, so that they are there once more.
        kept[DEAD_LETTERS] = [*gone, *kept.get(DEAD_LETTERS, ())]
        return kept

    try:
        return loop.receipt_of(loop.enter(Call(call.changes, after=after)))
    except ViewEvaluationError:
        if len(letters) == 1:
            raise
        # One of them makes a view fail: each is tried by itself, and that one stays.
        receipt = Receipt(loop.core.epoch)
        for index, letter in enumerate(letters):
            single = Decoded([decoded.arrivals[index]])
            single.letters = [one for one in decoded.letters if one.arrival is decoded.arrivals[index]]
            for table, origins in decoded.origins.items():
                for change, origin in zip(decoded.changes[table], origins, strict=True):
                    if origin[0] is decoded.arrivals[index]:
                        single.changes.setdefault(table, []).append(change)
                        single.origins.setdefault(table, []).append(origin)
            try:
                receipt = _added(receipt, _taken(loop, name, single, [letter]))
            except ViewEvaluationError as error:
                _keep(loop, letter, error)
        return receipt


def _keep(loop: Loop, letter: Mapping[str, Any], error: ViewEvaluationError) -> None:
    reason = f"view {error.view}: {error.message}. {error.detail}"
    loop.submit(Call({DEAD_LETTERS: [{"update": {"id": letter["id"], "stage": "view", "reason": reason}}]}))


def _record(letter: Mapping[str, Any]) -> Record:
    topic, _, rest = str(letter["position"]).rpartition("-")
    topic, _, partition = topic.rpartition("-")
    numbers = (partition, rest)
    if not all(one.isdigit() for one in numbers):
        return Record(payload_bytes(letter["payload"]), topic=str(letter["position"]))
    return Record(payload_bytes(letter["payload"]), topic=topic, partition=int(partition), offset=int(rest))


def _added(one: Receipt, other: Receipt) -> Receipt:
    def sums(name: str) -> dict[str, int]:
        first, second = getattr(one, name), getattr(other, name)
        return {table: first.get(table, 0) + second.get(table, 0) for table in {**first, **second}}

    return Receipt(other.epoch, sums("applied"), sums("stale"), sums("dead"), one.seconds + other.seconds)
