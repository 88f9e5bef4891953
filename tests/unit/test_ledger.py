"""The ledger gives back what was committed, epoch by epoch, also after it was opened again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.errors import LedgerError, OwnerLost
from headrace.ledger import ledger as ledger_module
from headrace.ledger.durable import is_whole
from headrace.ledger.ledger import Entry, Ledger, now_utc, summed
from headrace.ledger.log_files import needed_but_damaged
from headrace.ledger.names import cut_content_name, is_kept
from headrace.state.delta import Delta, consolidate, empty, weights_of
from headrace.storage.objects import Location

NOW = datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
INLINE = 4096


def opened(home: Location, inline_bytes: int = INLINE) -> Ledger:
    ledger = Ledger(home, inline_bytes)
    ledger.open()
    return ledger


def delta(*some: tuple[int | None, str | None, int]) -> Delta:
    columns = [pa.array([row[0] for row in some], pa.int64()), pa.array([row[1] for row in some], pa.string())]
    return consolidate(pa.table(columns, schema=SCHEMA), weights_of([row[2] for row in some]))


def shown(entry: Entry) -> tuple[int, str, list[tuple[Any, ...]]]:
    rows = [tuple(row.values()) for row in entry.rows.to_pylist()]
    signed = [(*row, weight) for row, weight in zip(rows, entry.weights.tolist(), strict=True)]
    return entry.epoch, entry.relation, signed


def listed(ledger: Ledger, *wanted: Any) -> list[tuple[int, str, list[tuple[Any, ...]]]]:
    return sorted(shown(entry) for entry in ledger.entries(*wanted))


def test_a_new_home_has_no_epochs(location: Location) -> None:
    ledger = opened(location)
    assert ledger.heads() == []
    assert listed(ledger) == []
    assert listed(ledger, "t", 0, 7) == []
    assert list(location.iterdir()) == []


def test_what_was_committed_is_read_back(location: Location) -> None:
    ledger = opened(location)
    head = {"definitions": ["CREATE TABLE t (a INT)"], "keys": {"ä": [1, None]}}
    ledger.commit(1, NOW, head, {"t": delta((1, "a", 1), (2, None, 3)), "t#0": delta((None, "x", -1))})
    ledger.commit(2, NOW + timedelta(seconds=1), {}, {"t": delta((1, "a", -1))})
    for one in (ledger, opened(location)):
        heads = one.heads()
        assert [(found.epoch, found.committed_at) for found in heads] == [(1, NOW), (2, NOW + timedelta(seconds=1))]
        assert [found.content for found in heads] == [head, {}]
        assert listed(one) == [
            (1, "t", [(1, "a", 1), (2, None, 3)]),
            (1, "t#0", [(None, "x", -1)]),
            (2, "t", [(1, "a", -1)]),
        ]
        assert [entry.committed_at for entry in one.entries("t")] == [NOW, NOW + timedelta(seconds=1)]


def test_entries_are_bounded_by_relation_and_epoch(location: Location) -> None:
    ledger = opened(location)
    for epoch in range(1, 6):
        ledger.commit(epoch, NOW, {}, {name: delta((epoch, name, 1)) for name in ("t", "u")})
    assert [entry.epoch for entry in ledger.entries("t")] == [1, 2, 3, 4, 5]
    assert [entry.epoch for entry in ledger.entries("t", since=2)] == [3, 4, 5]
    assert [entry.epoch for entry in ledger.entries("t", since=2, until=4)] == [3, 4]
    assert [entry.epoch for entry in ledger.entries(since=4)] == [5, 5]
    assert listed(ledger, "nobody") == []


def test_an_epoch_without_changes_is_an_epoch(location: Location) -> None:
    ledger = opened(location)
    ledger.commit(1, NOW, {"keys": ["once"]}, {"t": empty(SCHEMA)})
    assert [head.epoch for head in opened(location).heads()] == [1]
    assert listed(ledger) == []


def test_a_large_delta_lies_in_a_file(location: Location) -> None:
    ledger = opened(location)
    large = delta(*((number, f"row {number}", number % 3 - 4) for number in range(1000)))
    ledger.commit(1, NOW, {}, {"v#1": large, "t": delta((1, "a", 1))})
    (file,) = (location / "deltas").iterdir()
    assert file.name.startswith("000000000001-v.1-")
    assert is_whole(file)
    for one in (ledger, opened(location)):
        (entry,) = one.entries("v#1")
        assert entry.rows.equals(large.rows)
        assert entry.weights.tolist() == large.weights.tolist()


def test_a_lost_file_is_named(location: Location) -> None:
    ledger = opened(location, inline_bytes=0)
    ledger.commit(1, NOW, {}, {"t": delta((1, "a", 1))})
    (path,) = (location / "deltas").iterdir()
    path.unlink()
    with pytest.raises(LedgerError, match="000000000001-t-"):
        list(ledger.entries("t"))


@pytest.mark.parametrize("inline_bytes", [0, INLINE])
def test_rows_without_columns_keep_their_weight(location: Location, inline_bytes: int) -> None:
    ledger = opened(location, inline_bytes)
    for epoch, weight in enumerate([2, -1], start=1):
        bare = consolidate(pa.table({"gone": [0]}).select([]), weights_of([weight]))
        ledger.commit(epoch, NOW, {}, {"v": bare})
    entries = list(opened(location, inline_bytes).entries("v"))
    assert [entry.weights.tolist() for entry in entries] == [[2], [-1]]
    assert [entry.rows.num_columns for entry in entries] == [0, 0]
    assert summed(pa.schema([]), entries).weights.tolist() == [1]


@pytest.mark.parametrize("inline_bytes", [0, INLINE])
def test_every_type_comes_back_as_it_was(location: Location, inline_bytes: int) -> None:
    columns = {
        "c0": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        "c1": pa.array([NOW, None], pa.timestamp("us", "UTC")),
        "c2": pa.array([datetime(1582, 10, 15), None], pa.timestamp("us")),
        "c3": pa.array([b"\0", None], pa.binary()),
        "c4": pa.array([[1, None], None], pa.list_(pa.int32())),
        "c5": pa.array([[("a", 1.5)], None], pa.map_(pa.string(), pa.float64())),
        "c6": pa.array([{"x": -0.0, "y": True}, None], pa.struct([("x", pa.float32()), ("y", pa.bool_())])),
        "c7": pa.array([19000, None], pa.int32()).cast(pa.date32()),
    }
    sent = consolidate(pa.table(columns), weights_of([1, 2]))
    opened(location, inline_bytes).commit(1, NOW, {}, {"t": sent})
    state = summed(sent.rows.schema, list(opened(location, inline_bytes).entries("t")))
    assert state.rows.to_pylist() == sent.rows.to_pylist()
    assert state.weights.tolist() == [1, 2]
    assert state.low.tolist() == sent.low.tolist()


def test_the_sum_of_all_deltas_is_the_state(location: Location) -> None:
    ledger = opened(location)
    ledger.commit(1, NOW, {}, {"t": delta((1, "a", 2), (2, "b", 1))})
    ledger.commit(2, NOW, {}, {"t": delta((1, "a", -1), (2, "b", -1), (3, "c", 1))})
    state = summed(SCHEMA, list(ledger.entries("t")))
    assert state.rows.to_pylist() == [{"c0": 1, "c1": "a"}, {"c0": 3, "c1": "c"}]
    assert state.weights.tolist() == [1, 1]
    assert len(summed(SCHEMA, [])) == 0
    assert summed(SCHEMA, []).rows.schema == SCHEMA


def test_a_failed_commit_is_no_epoch(tmp_path: Path) -> None:
    ledger = opened(tmp_path, inline_bytes=0)
    (tmp_path / "deltas").write_text("in the way")
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.commit(1, NOW, {}, {"t": delta((1, "a", 1))})
    assert opened(tmp_path).heads() == []


def test_a_ledger_that_cannot_be_read_is_refused(location: Location) -> None:
    opened(location).commit(1, NOW, {}, {})
    (log,) = (location / "ledger" / "_delta_log").glob("*.json")
    log.write_bytes(b"{ not json")
    with pytest.raises(LedgerError):
        opened(location)


def test_time_is_utc_to_the_microsecond() -> None:
    assert now_utc().tzinfo is UTC


def test_everything_is_synced_before_an_epoch_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))
    ledger = opened(tmp_path, inline_bytes=0)
    ledger.claim(1)
    synced.clear()
    ledger.commit(1, NOW, {}, {"t": delta((1, "a", 1))})
    where = [Path(path).parent.name if ".tmp-" in path else Path(path).name for path in synced]
    # The new folder's name; the large delta, its folder; the rows, their folder; the commit, its folder.
    assert where[-7:] == [tmp_path.name, "deltas", "deltas", "ledger", "ledger", "_delta_log", "_delta_log"]


def test_a_writer_that_was_replaced_cannot_commit(location: Location) -> None:
    first, second = opened(location), opened(location)
    first.claim(1)
    first.commit(1, NOW, {}, {"t": delta((1, "a", 1))})
    second.open()
    second.claim(2)
    with pytest.raises(OwnerLost, match="another process"):
        first.commit(2, NOW, {}, {"t": delta((9, "stale", 1))})
    second.commit(2, NOW, {}, {"t": delta((2, "b", 1))})
    assert listed(opened(location)) == [(1, "t", [(1, "a", 1)]), (2, "t", [(2, "b", 1)])]
    assert list(opened(location).unreferenced(None)) == []


def test_what_a_relation_held_before_other_columns_is_kept_until_its_epoch_expires(location: Location) -> None:
    ledger = opened(location)
    ledger.claim(1)
    for epoch in range(1, 7):
        closed = {cut_content_name("t"): delta((0, "old", 1))} if epoch == 4 else {}
        ledger.commit(epoch, NOW, {}, {"t": delta((epoch, "t", 1)), "t#0": delta((epoch, "hidden", 1)), **closed})
    ledger.compact(6, 3, is_kept, 2)
    assert [entry.epoch for entry in ledger.entries("t")] == [4, 5, 6]
    assert [entry.epoch for entry in ledger.entries(cut_content_name("t"))] == [4]
    assert [entry.relation for entry in ledger.entries()] == ["t", "t", "t"]
    ledger.compact(6, 4, is_kept, 2)
    assert list(ledger.entries(cut_content_name("t"))) == []


def test_a_long_log_is_joined_a_segment_at_a_time(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_SEGMENT_BYTES", 12_000)
    ledger = opened(location)
    ledger.claim(1)
    for epoch in range(1, 21):
        ledger.commit(epoch, NOW, {}, {"t": delta((epoch, "t", 1)), "t#0": delta((epoch, "hidden", 1))})
    before = listed(ledger, "t")
    ledger.compact(20, 0, is_kept, 2)
    spans = sorted((one.low["epoch"], one.high["epoch"]) for one in ledger.files)
    assert 1 < len(spans) < 20
    assert all(first[1] < second[0] for first, second in pairwise(spans))
    assert listed(ledger, "t") == listed(opened(location), "t") == before
    monkeypatch.setattr(ledger_module, "_SEGMENT_BYTES", 2)
    full = {one.path for one in ledger.files}
    ledger.commit(21, NOW, {}, {"t": delta((21, "t", 1))})
    ledger.compact(21, 0, is_kept, 0)
    assert full < {one.path for one in ledger.files}


def test_epochs_go_on_while_the_log_is_summed_up(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(location)
    ledger.claim(1)
    monkeypatch.setattr(ledger_module, "_CHECKPOINT_EVERY", 3)
    for epoch in range(1, 6):
        ledger.commit(epoch, now_utc(), {}, {"t": delta((epoch, "a", 1))})
    create = DeltaTable.create_checkpoint

    def slowly(table: DeltaTable) -> None:
        # Would wait forever if the checkpoint held the turn that a commit needs.
        ledger.commit(6, now_utc(), {}, {"t": delta((6, "a", 1))})
        create(table)

    monkeypatch.setattr(DeltaTable, "create_checkpoint", slowly)
    ledger.tidy()
    ledger.commit(7, now_utc(), {}, {"t": delta((7, "a", 1))})
    assert [entry.epoch for entry in opened(location).entries("t")] == list(range(1, 8))
    assert needed_but_damaged(location / "ledger") == []
