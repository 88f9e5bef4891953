"""A backlog: many records at once, decoded into columns and taken into one epoch as whole columns.

Records that the columns do not surely understand are read alone, and what they change takes its place among the others:
changes of a key are applied in the order of their records, whichever way each was read. Where that cannot be had, as
with a truncation among them, nothing is made of the batch here, and it goes the way of single records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.capture.columns.debezium import ChangeColumns, ColumnDecoder
from headrace.capture.columns.records import Records
from headrace.capture.connector import Arrival, laid_over
from headrace.capture.messages import Message, NoChange, RowChange, Tombstone, Undecodable
from headrace.epoch.batch import Changes, Verdicts
from headrace.epoch.bulk import Bulk
from headrace.epoch.calls import Call
from headrace.epoch.column_changes import POSITIONS, ColumnChanges
from headrace.intake.arrow import table_schema, to_arrow
from headrace.intake.positions import Captured, SourcePosition, numbered
from headrace.intake.table import Decoded as ExactChange
from headrace.intake.table import TableContract
from headrace.sources.intake import Decoded, Letter, Progress, Torn, letter_row, raw_rows, without_records
from headrace.sources.positions import Positions
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, RAW_SCHEMA, raw_name
from headrace.state.arrow_compute import pc
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import found_among, number_identities
from headrace.state.hashing import identity

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
_RAW = pa.schema([pa.field(one.name, one.type) for one in table_schema(RAW_SCHEMA)])
# Rows of the raw table get their arrival when the call is made.
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ways:
    """How records are read: the table of a topic, its contract, its columns, and records one by one."""

    table_of: Callable[[str], str]
    contract_of: Callable[[str], TableContract]
    columns_of: Callable[[str], ColumnDecoder | None]
    decode: Callable[[Sequence[Arrival]], Decoded]
    most_bytes: int
    # None if changes are taken as they arrive.
    positions: Positions | None = None


@dataclass(eq=False)
class Prepared:
    """A batch that is ready for an epoch: the changes of each table, and what is kept of them."""

    records: Records
    most_bytes: int
    changes: dict[str, ColumnChanges] = field(default_factory=dict[str, ColumnChanges])
    letters: list[Letter] = field(default_factory=list[Letter])
    raw: list[pa.Table] = field(default_factory=list[pa.Table])

    @property
    def received(self) -> int:
        """How many changes came, those that could not be read included."""
        return sum(map(len, self.changes.values())) + sum(one.changes for one in self.letters)


class _Piece(NamedTuple):
    """Changes as columns, each with the place of its record, its number there and its position in the source."""

    rows: pa.Table
    deleted: Marks
    places: Places
    numbers: Places
    positions: pa.Table


class _Part(NamedTuple):
    """An update that keeps a part of the row of its key, or another change of such a key."""

    place: int
    number: int
    change: object
    position: SourcePosition | None
    key: tuple[Any, ...] = ()


@dataclass(eq=False)
class _Changed:
    """The changes of one table, from either way."""

    pieces: list[_Piece] = field(default_factory=list[_Piece])
    parts: list[_Part] = field(default_factory=list[_Part])


def prepare(records: Records, ways: Ways) -> Prepared | None:
    """What the records change, or None if they must go the way of single records."""
    prepared = Prepared(records, ways.most_bytes)
    sizes = np.fromiter((0 if value is None else len(value) for value in records.values), np.int64, len(records))
    topics = pa.array(records.topics, pa.string()).dictionary_encode()
    places = _Places(records, topics)
    alone = np.ones(len(records), dtype=bool)
    changed: dict[str, _Changed] = {}
    for number, topic in enumerate(topics.dictionary.to_pylist()):
        try:
            table = ways.table_of(topic)
        except Undecodable:
            continue
        decoder = ways.columns_of(table)
        if decoder is None:
            continue
        mine = np.flatnonzero((np.asarray(topics.indices) == number) & (sizes <= ways.most_bytes))
        listed = mine.tolist()
        values, keys = (
            pa.array([part[place] for place in listed], pa.large_binary()) for part in (records.values, records.keys)
        )
        columns = decoder.decode(values, keys)
        keyed = bool(ways.contract_of(table).key)
        positions, known = places.of(columns, mine, needed=keyed and ways.positions is not None)
        understood = columns.understood.copy()
        understood[columns.places[~known]] = False
        alone[mine[understood]] = False
        # Of one record the delete comes first, and then the insert.
        second = np.concatenate(([False], columns.places[1:] == columns.places[:-1]))[: len(columns.places)]
        chosen = pa.array(known)
        piece = _Piece(
            columns.rows.filter(chosen),
            columns.deleted[known],
            mine[columns.places[known]],
            second[known].astype(np.int64),
            positions.filter(chosen),
        )
        changed.setdefault(table, _Changed()).pieces.append(piece)
        prepared.raw.append(_raw_columns(records, mine[columns.raw_places], columns))
    if not _add_alone(prepared, ways, np.flatnonzero(alone), changed):
        return None
    if ways.positions is not None:
        places.remember(ways.positions, changed)
    for table, into in changed.items():
        changes = _in_order(ways.contract_of(table), into, ordered=ways.positions is not None)
        if len(changes):
            prepared.changes[table] = changes
    return prepared


class _Places:
    """Where records are in their partitions."""

    def __init__(self, records: Records, topics: pa.DictionaryArray) -> None:
        self._records = records
        self._offsets = np.array(records.offsets, dtype=np.int64)
        partitions = np.array(records.partitions, dtype=np.int64)
        of_topic = np.asarray(topics.indices).astype(np.int64)
        _, firsts, self._which = np.unique(
            np.stack([of_topic, partitions]), axis=1, return_index=True, return_inverse=True
        )
        self._which = self._which.reshape(-1)
        names = [f"{records.topics[one]}:{records.partitions[one]}" for one in firsts.tolist()]
        self._numbers = np.array([numbered(name) for name in names], dtype=np.int64)
        order = np.argsort(self._which, kind="stable")
        same = self._which[order][1:] == self._which[order][:-1]
        # Of each record the one before it in its partition, -1 for the first that came.
        self._before = np.full(len(records), -1, dtype=np.int64)
        self._before[order[1:][same]] = order[:-1][same]

    def of(self, columns: ChangeColumns, mine: Places, *, needed: bool) -> tuple[pa.Table, Marks]:
        """The positions of changes in their source, and of which they are known, where that is needed.

        A tombstone has that of the delete before it, which it repeats; where it cannot be told, it is read alone.
        """
        logged = np.full(len(mine), -1, dtype=np.int64)
        logged[columns.raw_places] = np.arange(len(columns.raw_places))
        told = logged[columns.places]
        if needed and (told < 0).any():
            local = {int(place): index for index, place in enumerate(mine.tolist())}
            deletes = np.zeros(len(mine), dtype=bool)
            deletes[columns.places[columns.deleted]] = True
            for index in np.flatnonzero(told < 0).tolist():
                place = int(mine[columns.places[index]])
                before = int(self._before[place])
                here = local.get(before, -1)
                if here >= 0 and deletes[here] and logged[here] >= 0 and self._follows(before, place):
                    told[index] = logged[here]
        known = (told >= 0) | (not needed)
        rows = pa.array(np.maximum(told, 0), mask=told < 0)
        at = mine[columns.places]
        parts = [
            columns.logged.column("log").take(rows),
            columns.logged.column("order").take(rows),
            pa.array(self._numbers[self._which[at]]),
            pa.array(self._offsets[at]),
            pa.array(np.zeros(len(at), dtype=np.int32)),
            columns.raw.column("source_at").take(rows).cast(POSITIONS.types[5]),
            columns.logged.column("read").take(rows),
        ]
        return pa.table(parts, schema=POSITIONS), known

    def _follows(self, before: int, place: int) -> bool:
        keys = self._records.keys
        return bool(self._offsets[before] == self._offsets[place] - 1) and keys[before] == keys[place]

    def remember(self, positions: Positions, changed: dict[str, _Changed]) -> None:
        """Let the last delete of each partition be known to whoever reads the next records."""
        for into in changed.values():
            for piece in into.pieces:
                gone = np.flatnonzero(piece.deleted)
                _, lasts = np.unique(self._which[piece.places[gone]][::-1], return_index=True)
                for last in gone[::-1][lasts].tolist():
                    place = int(piece.places[last])
                    if self._records.values[place] is not None:
                        row = [column[last].as_py() for column in piece.positions.columns]
                        positions.remember(self._records.record(place), SourcePosition(*row))


def call_of(source: str, prepared: Prepared, before: Progress, *, raw: bool) -> tuple[Call, Callable[[], Progress]]:
    """The call that takes a batch into an epoch, and how far the source is once it has been committed.

    If a change is rejected by what the table holds, its epoch ends with `Torn`: which record it was, and what else it
    would have changed, shows when they come one by one.
    """
    now = datetime.now(UTC)
    reached = [before]

    def after(verdicts: Verdicts) -> Changes:
        if verdicts.rejections:
            raise Torn(())
        rows = _with_arrival(prepared.raw, now) if raw and prepared.raw else None
        times = [one for one in (before.source_at, _latest(prepared.raw)) if one is not None]
        reached[0] = progress = replace(
            before,
            position=laid_over(before.position, prepared.records.advance),
            received=before.received + prepared.received,
            applied=before.applied + sum(verdicts.applied.values()),
            stale=before.stale + sum(verdicts.stale.values()),
            dead=before.dead + sum(one.changes for one in prepared.letters),
            recorded=before.recorded + (0 if rows is None else rows.num_rows),
            source_at=max(times, default=None),
        )
        kept: dict[str, Sequence[object] | Bulk] = {PROGRESS: [{"insert": progress.row(source, now)}]}
        if prepared.letters:
            kept[DEAD_LETTERS] = [
                {"insert": letter_row(source, letter, now, prepared.most_bytes)} for letter in prepared.letters
            ]
        if rows is not None and rows.num_rows:
            kept[raw_name(source)] = Bulk(rows.slice(0, 0), rows)
        return kept

    return Call(dict(prepared.changes), after=after), lambda: reached[0]


def _add_alone(prepared: Prepared, ways: Ways, places: Places, changed: dict[str, _Changed]) -> bool:
    """Read records one by one, and add what they change; False if one of them is no change of a row."""
    arrivals = [prepared.records.arrival(place) for place in places.tolist()]
    decoded = ways.decode(arrivals)
    if not all(_stands_alone(message) for _, message in decoded.messages):
        return False
    place_of = {id(arrival): place for arrival, place in zip(arrivals, places.tolist(), strict=True)}
    exact: dict[str, list[ExactChange | None]] = {}
    refused: list[Letter] = []
    for table, changes in decoded.changes.items():
        exact[table], reasons = ways.contract_of(table).decode_all(changes, most=len(changes))
        by_record: dict[int, tuple[Arrival, list[str]]] = {}
        for index in sorted(reasons):
            arrival = decoded.origins[table][index].arrival
            by_record.setdefault(id(arrival), (arrival, []))[1].append(reasons[index])
        if by_record and not ways.contract_of(table).key:
            # Whether the rest of such a record would be refused too, for there is no such row, shows one by one.
            return False
        # A record is applied whole or not at all.
        refused += [
            Letter(arrival, 0, table, "contract", "; ".join(dict.fromkeys(told)))
            for arrival, told in by_record.values()
        ]
    gone = {id(letter.arrival) for letter in refused}
    prepared.letters.extend(without_records(decoded, refused).letters)
    rows = raw_rows(decoded, _NEVER)
    if rows:
        prepared.raw.append(pa.Table.from_pylist(rows, schema=_RAW))
    for table, changes in decoded.changes.items():
        listed = [
            (change, one, place_of[id(origin.arrival)], origin.number, origin.position)
            for change, one, origin in zip(changes, exact[table], decoded.origins[table], strict=True)
            if one is not None and id(origin.arrival) not in gone
        ]
        into = changed.setdefault(table, _Changed())
        into.parts += [
            _Part(place, number, change, at, one.key) for change, one, place, number, at in listed if one.kept
        ]
        whole = [parts[1:] for parts in listed if not parts[1].kept]
        if whole:
            into.pieces.append(_exact_piece(ways.contract_of(table), whole))
    return True


def _stands_alone(message: Message) -> bool:
    """Whether a message changes no more than a row, and may be parted from those around it."""
    if isinstance(message, RowChange):
        transaction = message.origin.transaction
        return transaction is None or transaction.order is None
    return isinstance(message, (Tombstone, NoChange))


def _exact_piece(
    contract: TableContract, changes: Sequence[tuple[ExactChange, int, int, SourcePosition | None]]
) -> _Piece:
    """Changes that were read one by one, as columns."""
    rows = [_row_of_key(contract, one) if one.row is None else one.row for one, *_ in changes]
    empty = (None,) * len(POSITIONS)
    columns = zip(*(tuple(at) if at is not None else empty for *_, at in changes), strict=True)
    return _Piece(
        _positional(rows, contract.schema),
        np.array([one.delete for one, *_ in changes], dtype=bool),
        np.array([place for _, place, _, _ in changes], dtype=np.int64),
        np.array([number for _, _, number, _ in changes], dtype=np.int64),
        pa.table([pa.array(part, kind) for part, kind in zip(columns, POSITIONS.types, strict=True)], schema=POSITIONS),
    )


def _row_of_key(contract: TableContract, change: ExactChange) -> tuple[Any, ...]:
    """What a delete by key names, as a row that has nothing else."""
    row: list[Any] = [None] * len(contract.schema.names)
    for index, value in zip(contract.key_indexes, change.key, strict=True):
        row[index] = value
    if contract.sequence is not None:
        row[contract.schema.names.index(contract.sequence)] = change.sequence
    return tuple(row)


def _in_order(contract: TableContract, into: _Changed, *, ordered: bool) -> ColumnChanges:
    """All changes of a table in the order of their records.

    Of a key of which a part is updated, all changes are taken one by one: each depends on those before it.
    """
    if into.pieces:
        places = np.concatenate([piece.places for piece in into.pieces])
        numbers = np.concatenate([piece.numbers for piece in into.pieces])
        deleted = np.concatenate([piece.deleted for piece in into.pieces])
        order = np.lexsort((numbers, places))
        rows, positions = (
            pa.concat_tables([piece[index] for piece in into.pieces]).combine_chunks().take(pa.array(order))
            for index in (0, 4)
        )
        whole = _Piece(rows, deleted[order], places[order], numbers[order], positions)
    else:
        none = np.zeros(0, dtype=np.int64)
        empty = arrow_schema(one.dataType for one in contract.schema.fields).empty_table()
        whole = _Piece(empty, none.astype(bool), none, none, POSITIONS.empty_table())
    kept = whole.positions if ordered and contract.key else None
    if not into.parts:
        return ColumnChanges(whole.rows, whole.deleted, kept)
    touched = _of_keys(contract, whole.rows, [part.key for part in into.parts])
    listed = sorted([*into.parts, *_one_by_one(contract, whole, np.flatnonzero(touched))], key=lambda one: one[:2])
    others: Sequence[object] = [one.change for one in listed]
    if kept is not None:
        others = Captured(others, [one.position for one in listed])
        kept = kept.filter(pa.array(~touched))
    return ColumnChanges(whole.rows.filter(pa.array(~touched)), whole.deleted[~touched], kept, others)


def _of_keys(contract: TableContract, rows: pa.Table, keys: Sequence[tuple[Any, ...]]) -> Marks:
    """Which rows are of some keys."""
    wanted = _positional(keys, StructType([contract.schema.fields[index] for index in contract.key_indexes]))
    low, high = identity(wanted.columns, wanted.num_rows)
    firsts, _ = number_identities(low, high)
    mine = identity([rows.column(index) for index in contract.key_indexes], rows.num_rows)
    return found_among(*mine, low[firsts], high[firsts])[1]


def _one_by_one(contract: TableContract, piece: _Piece, chosen: Places) -> list[_Part]:
    """Some changes as `apply` takes them."""
    rows = piece.rows.take(pa.array(chosen)).rename_columns(contract.schema.names).to_pylist()
    positions = [column.to_pylist() for column in piece.positions.take(pa.array(chosen)).columns]
    carried = {*contract.key, *([contract.sequence] if contract.sequence is not None else [])}
    listed: list[_Part] = []
    for index, row, position in zip(chosen.tolist(), rows, zip(*positions, strict=True), strict=True):
        change = {"delete": {name: row[name] for name in carried}} if piece.deleted[index] else {"insert": row}
        at = None if position[0] is None else SourcePosition(*position)
        listed.append(_Part(int(piece.places[index]), int(piece.numbers[index]), change, at))
    return listed


def _raw_columns(records: Records, places: Places, changes: ChangeColumns) -> pa.Table:
    """Rows of the raw table, but for when they arrived."""
    raw, logged = changes.raw, changes.logged
    chosen = pa.array(places)
    topics = pa.array(records.topics, pa.string()).take(chosen)
    numbers = (
        pa.array(part, pa.int64()).take(chosen).cast(pa.string()) for part in (records.partitions, records.offsets)
    )
    ids = pc.binary_join_element_wise(topics, *numbers, "-")
    columns = {name: raw.column(name) for name in raw.column_names}
    columns["source_at"] = columns["source_at"].cast(_RAW.field("source_at").type)
    columns["position"] = pc.coalesce(columns["position"].cast(pa.string()), ids)
    arrived = pa.nulls(len(places), _RAW.field("arrived_at").type)
    order = pc.binary_join_element_wise(logged.column("log").cast(pa.string()), logged.column("order"), " ")
    return pa.table({"event_id": ids, **columns, "arrived_at": arrived, "log_order": order}).cast(_RAW)


def _with_arrival(parts: Sequence[pa.Table], now: datetime) -> pa.Table:
    """The rows of the raw table, as it holds them."""
    rows = pa.concat_tables(parts).combine_chunks()
    index = _RAW.get_field_index("arrived_at")
    arrived = pa.array([now], _RAW.field(index).type).take(pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
    return conform(rows.set_column(index, _RAW.field(index), arrived), [field.dataType for field in RAW_SCHEMA.fields])


def _latest(parts: Sequence[pa.Table]) -> datetime | None:
    """The latest time that raw rows have."""
    times = [pc.max(part.column("source_at")).as_py() for part in parts]
    return max((one for one in times if one is not None), default=None)


def _positional(rows: Sequence[tuple[Any, ...]], schema: StructType) -> pa.Table:
    # A row of a delete has NULL where the table takes none.
    loose = StructType([StructField(one.name, one.dataType, True) for one in schema.fields])
    return conform(to_arrow(rows, loose), [one.dataType for one in schema.fields])


@dataclass(frozen=True)
class Backlog:
    """What a source does with many records at once: from how many on, how many at most, and what reads the columns."""

    large: int
    most: int
    table_of: Callable[[str], str]
    contract_of: Callable[[str], TableContract]
    columns_of: Callable[[str], ColumnDecoder | None]
