"""A base holds what the deltas come to, for every reader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import numpy as np
import pyarrow as pa
import pytest

from headrace.ledger import base as bases
from headrace.ledger.base import Base, BaseSchema
from headrace.ledger.delta_log import delta_table
from headrace.state.delta import Delta, consolidate
from headrace.storage.objects import Location
from tests.thinned import thinned

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
PLAIN = BaseSchema(("id", "name"), SCHEMA)
KEYED = BaseSchema(("id", "name"), SCHEMA, key=(0,))
HIDDEN = BaseSchema(("c0", "c1"), SCHEMA, hidden=True)
Rows = Counter[tuple[int | None, str | None]]


def delta_of(rows: Rows) -> Delta:
    pairs = [pair for pair, n in rows.items() if n]
    columns = [pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.string())]
    return consolidate(pa.table(columns, schema=SCHEMA), np.array([rows[pair] for pair in pairs], dtype=np.int64))


def read_by_delta_rs(path: Location) -> Rows:
    return Counter(tuple(row.values()) for row in delta_table(path).to_pyarrow_table().to_pylist())


def by_duckdb(query: str) -> list[Any]:
    extension = next(Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension"))
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        return connection.execute(query).fetchall()


def read_by_duckdb(path: Path) -> Rows:
    return Counter(by_duckdb(f"SELECT * FROM delta_scan('{path}')"))


def held(base: Base, base_schema: BaseSchema) -> Rows:
    found: Rows = Counter()
    for content in base.contents(base_schema):
        for row, weight in zip(content.rows.to_pylist(), content.weights.tolist(), strict=True):
            found[row["c0"], row["c1"]] += weight
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("base_schema", [PLAIN, HIDDEN], ids=["plain", "hidden"])
@pytest.mark.parametrize("seed", thinned(range(3), 3))
def test_random_folds_come_to_the_model(
    location: Location, monkeypatch: pytest.MonkeyPatch, base_schema: BaseSchema, seed: int
) -> None:
    monkeypatch.setattr(bases, "_FILE_ROWS", 40)
    monkeypatch.setattr(bases, "_JOIN_AT", 3)
    random = np.random.default_rng(seed)
    path, model = location / "t", Counter[Any]()
    base = Base(path)
    base.replace(base_schema, iter([]), 1)
    for epoch in range(2, 40 if isinstance(location, Path) else 16):
        change: Rows = Counter()
        for _ in range(int(random.integers(1, 30))):
            value = None if random.random() < 0.1 else f"v{random.integers(0, 3)}"
            change[int(random.integers(0, 40)), value] += int(random.integers(1, 3))
        if epoch % 3 == 0:
            for pair in random.permutation(np.array(list(model), dtype=object))[:10].tolist() if model else []:
                change[tuple(pair)] -= int(random.integers(1, model[tuple(pair)] + 1))
        net = delta_of(change)
        if len(net) == 0:
            continue
        base.fold(base_schema, net, epoch)
        model.update(change)
        model = Counter({pair: n for pair, n in model.items() if n})
        if epoch % 7 == 0:
            base = Base(path)
        assert base.epoch == epoch
        assert held(base, base_schema) == model
        if not base_schema.hidden and epoch % 5 == 0:
            assert read_by_delta_rs(path) == model
    for file in list(base.unreferenced()):
        file.unlink()
    assert held(Base(path), base_schema) == model
    if not base_schema.hidden:
        assert read_by_delta_rs(path) == model
        assert not isinstance(path, Path) or read_by_duckdb(path) == model
    assert len(base.files) < 60


def test_changes_that_a_crash_left_go_though_a_later_commit_has_their_number(location: Location) -> None:
    base = Base(location / "t")
    base.replace(KEYED, iter([delta_of(Counter({(1, "a"): 1}))]), 1)
    base.fold(KEYED, delta_of(Counter({(1, "a"): -1, (1, "b"): 1})), 2)
    (named,) = (location / "t" / "_change_data").glob("*")
    left = location / "t" / "_change_data" / f"{named.name.rsplit('-', 1)[0]}-{'0' * 64}.parquet"
    left.write_bytes(b"what nobody named")
    assert [one for one in Base(location / "t").unreferenced() if "_change_data" in str(one)] == [left]


def test_the_change_feed_sums_to_the_table(location: Location) -> None:
    base = Base(location / "t")
    base.replace(KEYED, iter([delta_of(Counter({(i, "a"): 1 for i in range(5)}))]), 1)
    base.fold(KEYED, delta_of(Counter({(9, "new"): 1})), 2)
    base.fold(KEYED, delta_of(Counter({(1, "a"): -1, (1, "b"): 1, (2, "a"): -1})), 4)
    feed = pa.table(delta_table(location / "t").load_cdf(starting_version=0)).to_pylist()
    summed: Rows = Counter()
    for row in feed:
        summed[row["id"], row["name"]] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
    assert Counter({k: n for k, n in summed.items() if n}) == read_by_delta_rs(location / "t")
    last = {(row["id"], row["name"], row["_change_type"]) for row in feed if row["_commit_version"] == 2}
    assert last == {(1, "a", "update_preimage"), (1, "b", "update_postimage"), (2, "a", "delete")}
    history = delta_table(location / "t").history()
    assert '"epoch": 4' in history[0]["userMetadata"]


def test_new_columns_replace_the_table(location: Location) -> None:
    base = Base(location / "t")
    base.replace(PLAIN, iter([delta_of(Counter({(1, "a"): 2}))]), 1)
    renamed = BaseSchema(("id", "title"), SCHEMA)
    assert Base(location / "t").fits(PLAIN)
    assert not Base(location / "t").fits(renamed)
    base.replace(renamed, iter([delta_of(Counter({(1, "a"): 2}))]), 2)
    assert delta_table(location / "t").to_pyarrow_table().column_names == ["id", "title"]
    assert Base(location / "t").fits(renamed)


def test_every_type_lies_in_a_base(location: Location) -> None:
    import datetime as dt
    from decimal import Decimal

    columns: dict[str, Any] = {
        "c0": pa.array([1, None], pa.int8()),
        "c1": pa.array([1, None], pa.int16()),
        "c2": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        "c3": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("us", "UTC")),
        "c4": pa.array([dt.datetime(1582, 10, 15), None], pa.timestamp("us")),
        "c5": pa.array([b"\0", None], pa.binary()),
        "c6": pa.array([[1, None], None], pa.list_(pa.int32())),
        "c7": pa.array([[("a", 1.5)], None], pa.map_(pa.string(), pa.float64())),
        "c8": pa.array([{"x": -0.0, "y": True}, None], pa.struct([("x", pa.float32()), ("y", pa.bool_())])),
        "c9": pa.array([dt.date(2024, 1, 1), None], pa.date32()),
        "c10": pa.array([dt.timedelta(days=2), None], pa.duration("us")),
        "c11": pa.nulls(2),
    }
    content = consolidate(pa.table(columns), np.array([1, 1]))
    base_schema = BaseSchema(tuple(f"a column {i}" for i in range(len(columns))), content.rows.schema)
    Base(location / "t").replace(base_schema, iter([content]), 1)
    again = Base(location / "t")
    assert again.fits(base_schema)
    (found,) = again.contents(base_schema)
    assert found.rows.to_pylist() == content.rows.to_pylist()
    assert found.rows.schema.equals(content.rows.schema)
    assert delta_table(location / "t").to_pyarrow_table().num_rows == 2
    assert not isinstance(location, Path) or by_duckdb(f"SELECT count(*) FROM delta_scan('{location / 't'}')") == [(2,)]


@pytest.mark.parametrize("base_schema", [PLAIN, HIDDEN], ids=["plain", "hidden"])
def test_the_same_rows_may_come_again_and_again(location: Location, base_schema: BaseSchema) -> None:
    base, one = Base(location), Counter({(1, "a"): 1})
    base.replace(base_schema, [delta_of(one)], 1)
    base.fold(base_schema, delta_of(one), 2)
    base.fold(base_schema, delta_of(Counter({(1, "a"): 2})), 3)
    assert held(base, base_schema) == held(Base(location), base_schema) == {(1, "a"): 4}
    base.fold(base_schema, delta_of(Counter({(1, "a"): -3})), 4)
    assert held(base, base_schema) == held(Base(location), base_schema) == one


def test_a_log_is_summed_up_in_time_however_often_it_is_opened(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "_CHECKPOINT_EVERY", 4)
    monkeypatch.setattr(bases, "_KEEP_COMMITS", 2)
    Base(location).replace(PLAIN, [delta_of(Counter({(0, "a"): 1}))], 1)
    for epoch in range(2, 20):
        Base(location).fold(PLAIN, delta_of(Counter({(epoch, "a"): 1})), epoch)
    assert len(list((location / "_delta_log").glob("*.json"))) <= 7


def test_an_unfinished_checkpoint_is_named_by_nothing(location: Location) -> None:
    base = Base(location)
    base.replace(PLAIN, [delta_of(Counter({(0, "a"): 1}))], 1)
    unfinished = location / "_delta_log" / f"{0:020d}.checkpoint.parquet#1"
    unfinished.write_bytes(b"")
    assert list(Base(location).unreferenced()) == [unfinished]


def test_a_base_remembers_nothing_of_files_that_are_gone(location: Location) -> None:
    base = Base(location / "base")
    for epoch in range(1, 9):
        base.replace(PLAIN, [delta_of(Counter({(epoch, "a"): 1}))], epoch)
        list(base.contents(PLAIN))
        assert len(base._whole_identities) <= 2


def test_a_name_that_no_folder_can_have_has_no_base(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    assert not Base(tmp_path / "tables" / ("t" * 300)).exists
    Base(tmp_path / "tables" / ("t" * 128)).replace(PLAIN, [delta_of(Counter({(1, "a"): 1}))], 1)
    assert Base(tmp_path / "tables" / ("t" * 128)).exists
