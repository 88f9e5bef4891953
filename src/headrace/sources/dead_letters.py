"""What becomes of dead letters: tried again after a fix, as they came or edited, or let go.

Each step is an epoch of its own, worked out while no other is made: so a letter is taken once, whoever else takes it at
the same time, and the counts of its source stay exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any

import pyarrow as pa

from headrace.capture.connector import Arrival
from headrace.capture.record import Record
from headrace.epoch.batch import Changes, Verdicts
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import MemoryExceeded, RelationNameError, SourceError, ViewEvaluationError
from headrace.reading.held_rows import HeldRows
from headrace.reading.point_read import rows_where
from headrace.sources.connectors import CONNECTORS, most_bytes_of, positions_of
from headrace.sources.decoders import Decoders
from headrace.sources.intake import Progress, Torn, call_for, decode, payload_bytes
from headrace.sources.running import progress_of, table_of
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, fitting_letters
from headrace.sql.syntax import DeadLetterAction
from headrace.state.arrow_compute import pc
from headrace.state.state import BEGIN, At

Row = Mapping[str, Any]
# A letter that was cut is not what came: it stays until it is edited or let go.
CUT = "size"
_ID = "letter"
# More than these are found by looking at all.
_LOOKED_UP = 64
# So many are read before those that are not asked for are let go.
_READ_AT_ONCE = 1_000
# Others wait while an epoch of letters is worked out: it has no more than these.
_AT_ONCE = 5_000


@dataclass(frozen=True)
class Filter:
    """Which letters: by their ids, by source, by stage; all that are given must hold."""

    ids: tuple[str, ...] | None = None
    source: str | None = None
    stage: str | None = None


def find_letters(
    core: Core, wanted: Filter, after: tuple[datetime, str] | None = None, most: int | None = None
) -> list[dict[str, Any]]:
    """The letters of a filter, oldest first, without work for Spark; those after one, and so many at most, if asked."""
    held: pa.Table | None = None
    for piece in _found(core, wanted):
        found = piece
        if after is not None:
            arrived_at, name = pa.scalar(after[0], found.column("arrived_at").type), pa.scalar(after[1])
            same = pc.and_(pc.equal(found.column("arrived_at"), arrived_at), pc.greater(found.column("id"), name))
            found = found.filter(pc.or_(pc.greater(found.column("arrived_at"), arrived_at), same))
        # A payload may be large: no more of them are held than are asked for.
        held = _oldest(found if held is None else pa.concat_tables([held, found]), most)
    return [] if held is None else _oldest(held, most).to_pylist()


def _oldest(letters: pa.Table, most: int | None) -> pa.Table:
    order = pc.sort_indices(letters.select(["arrived_at", "id"]), [("arrived_at", "ascending"), ("id", "ascending")])
    return letters.take(order[:most])


def count_letters(core: Core, wanted: Filter) -> int:
    """How many letters a filter has."""
    return sum(piece.num_rows for piece in _found(core, wanted))


def _found(core: Core, wanted: Filter) -> Iterator[pa.Table]:
    """The letters of a filter, piece by piece, in no order."""
    relations = core.relations()
    if DEAD_LETTERS not in relations:
        return
    state, schema = relations[DEAD_LETTERS]
    looked_up = wanted.ids is not None and 0 < len(wanted.ids) <= _LOOKED_UP
    pieces = (
        [rows_where(state, schema, {"id": one}) for one in dict.fromkeys(wanted.ids or ())]
        if looked_up
        else _pieces(HeldRows(state, schema.names))
    )
    for piece in pieces:
        found = piece
        if wanted.ids is not None and not looked_up:
            found = found.filter(pc.is_in(found.column("id"), pa.array(wanted.ids, pa.string())))
        for name in ("source", "stage"):
            value = getattr(wanted, name)
            if value is not None:
                found = found.filter(pc.equal(found.column(name), pa.scalar(value)))
        if found.num_rows:
            yield found


def _pieces(rows: HeldRows) -> Iterator[pa.Table]:
    at: At | None = BEGIN
    while at is not None:
        piece = rows.piece(at, _READ_AT_ONCE)
        yield piece.rows
        at = piece.after


def refuse_unknown(ids: Sequence[str], letters: Sequence[Row]) -> None:
    """Refuse ids of which there is no letter."""
    lacking = set(ids) - {one["id"] for one in letters}
    if lacking:
        raise RelationNameError(
            "there is no such dead letter",
            detail=f"It is {min(lacking)[:200]!r}. It may have been replayed or discarded.",
            hint="list the dead letters that there are",
        )


def chosen_letters(core: Core, where: str) -> list[dict[str, Any]]:
    """The letters that a condition of SQL names, oldest first."""
    if not where:
        return find_letters(core, Filter())
    relations = core.relations()
    if DEAD_LETTERS not in relations:
        return []
    found = core.sessions.queries.run(f"SELECT * FROM {DEAD_LETTERS} WHERE {where}", relations)
    return sorted(found.to_pylist(), key=_age)


def act(loop: Loop, statement: DeadLetterAction) -> Receipt:
    """Replay or discard letters; the receipt tells how many were applied, stale or dead again."""
    letters = chosen_letters(loop.core, statement.where)
    return discard(loop, letters) if statement.verb == "discard" else replay(loop, letters)


def discard(loop: Loop, letters: Sequence[Row]) -> Receipt:
    """Let go of letters for good."""
    core = loop.core

    def work_out() -> Call:
        held = _still_there(core, letters)
        if not held:
            return Call({}, quiet=True)
        changes: dict[str, list[object]] = {DEAD_LETTERS: [{"delete": {"id": one["id"]}} for one in held]}
        for name in dict.fromkeys(str(one["source"]) for one in held):
            if name in core.catalog.sources:
                gone = sum(one["changes"] for one in held if one["source"] == name)
                progress = progress_of(core, name)
                progress = replace(progress, discarded=progress.discarded + gone)
                changes.setdefault(PROGRESS, []).append({"insert": progress.row(name, datetime.now(UTC))})
        return Call(changes)

    return loop.change_alone(work_out)


def replay(loop: Loop, letters: Sequence[Row]) -> Receipt:
    """Read letters once more as their sources would, so many in an epoch; those refused again stay, with the reason.

    A letter whose `payload` is another than the one that is kept is read with that.
    """
    receipt = Receipt(loop.core.epoch)
    for name in dict.fromkeys(str(one["source"]) for one in letters):
        mine = [one for one in letters if one["source"] == name]
        for start in range(0, len(mine), _AT_ONCE):
            receipt = _added(receipt, _replay(loop, name, mine[start : start + _AT_ONCE]))
    return receipt


def _replay(loop: Loop, name: str, letters: Sequence[Row]) -> Receipt:
    """Replay the letters of one source together; or each by itself, where one of them makes a view fail."""
    # By id, what is known to be against one of them.
    refused: dict[str, tuple[str, str]] = {}
    while True:
        dead: Counter[str] = Counter()
        try:
            receipt = loop.change_alone(partial(_worked_out, loop.core, name, letters, refused, dead))
            return _added(receipt, Receipt(receipt.epoch, dead=dict(dead)))
        except Torn as torn:
            refused.update({one.arrival.advance[_ID]: (one.stage, one.reason) for one in torn.letters})
        except (ViewEvaluationError, MemoryExceeded) as error:
            if len(letters) > 1:
                return reduce(_added, [_replay(loop, name, [one]) for one in letters])
            of_view = isinstance(error, ViewEvaluationError)
            what = f"view {error.view}: {error.message}" if of_view else error.message
            refused[letters[0]["id"]] = "view" if of_view else "memory", f"{what}. {error.detail}"


def _worked_out(
    core: Core, name: str, letters: Sequence[Row], refused: Mapping[str, tuple[str, str]], dead: Counter[str]
) -> Call:
    """The call that takes letters again; those known to be refused stay, with the reason, and are counted as dead."""
    source = core.catalog.sources.get(name)
    if source is None:
        raise RelationNameError(
            f"source {name} is gone, and nobody else knows how its letters are read",
            hint="create it again under its name, or DISCARD DEAD LETTERS",
        )
    connector = CONNECTORS.get(source.connector)
    if connector is None:
        raise SourceError(f"source {name} has no connector any more")
    held = {one["id"]: one for one in _still_there(core, letters)}
    there = [one for one in letters if one["id"] in held]
    stay = {one["id"]: one for one in there if one["id"] in refused or _is_cut(one, held[one["id"]])}
    tried = [one for one in there if one["id"] not in stay]
    dead.update(one["table"] or name for one in stay.values())
    if not there:
        return Call({}, quiet=True)
    arrivals = [Arrival(_record(one), {_ID: one["id"]}) for one in tried]
    tables = {one["id"]: one["table"] for one in tried}
    decoded = decode(
        arrivals,
        lambda one: tables[one.advance[_ID]] or table_of(core, source, one),
        Decoders(core, source, connector),
        most_bytes=most_bytes_of(source.options),
        positions=positions_of(source, connector),
    )
    dead.update(one.table or name for one in decoded.letters)
    before = progress_of(core, name)

    def after(verdicts: Verdicts) -> Changes:
        call, reached = call_for(name, decoded, before, raw=False)
        assert call.after is not None
        kept: dict[str, Any] = dict(fitting_letters(core.catalog, call.after(verdicts)))
        known = [(one, *refused[one]) for one in stay if one in refused]
        again = [{"update": {"id": one, "stage": stage, "reason": reason}} for one, stage, reason in known]
        gone = [{"delete": {"id": one["id"]}} for one in tried]
        # Those refused again come after the deletes, so that they are there once more.
        kept[DEAD_LETTERS] = [*gone, *again, *kept.get(DEAD_LETTERS, ())]
        progress = _counted_once(before, reached(), sum(held[one["id"]]["changes"] for one in tried))
        kept[PROGRESS] = [{"insert": progress.row(name, datetime.now(UTC))}]
        return kept

    return Call(decoded.captured, after=after)


def _counted_once(before: Progress, after: Progress, again: int) -> Progress:
    """The progress after a replay: what was received before is not received again, and no longer dead."""
    counts = replace(after, received=after.received - again, dead=after.dead - again)
    return replace(counts, position=before.position, source_at=before.source_at)


def _still_there(core: Core, letters: Sequence[Row]) -> list[dict[str, Any]]:
    return find_letters(core, Filter(ids=tuple(str(one["id"]) for one in letters)))


def _is_cut(letter: Row, held: Row) -> bool:
    return held["stage"] == CUT and letter["payload"] == held["payload"]


def _record(letter: Row) -> Record:
    topic, _, rest = str(letter["position"]).rpartition("-")
    topic, _, partition = topic.rpartition("-")
    numbers = (partition, rest)
    # One that an older release kept has no key.
    content, key = payload_bytes(letter["payload"]), payload_bytes(letter.get("key"))
    if not all(one.isdigit() for one in numbers):
        return Record(content, key, topic=str(letter["position"]))
    return Record(content, key, topic=topic, partition=int(partition), offset=int(rest))


def _age(letter: Row) -> tuple[Any, str]:
    return letter["arrived_at"], letter["id"]


def _added(one: Receipt, other: Receipt) -> Receipt:
    def sums(name: str) -> dict[str, int]:
        first, second = getattr(one, name), getattr(other, name)
        return {table: first.get(table, 0) + second.get(table, 0) for table in {**first, **second}}

    return Receipt(other.epoch, sums("applied"), sums("stale"), sums("dead"), one.seconds + other.seconds)
