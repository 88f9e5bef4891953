"""A home is the same home in a folder and in an object store: committed, folded, reopened, read at every epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import HomeBusy, OwnerLost
from headrace.ledger.delta_log import delta_table
from headrace.ledger.ledger import Ledger
from headrace.offline import inspect_home, restore_home
from headrace.storage.objects import Location, ObjectPath

EPOCHS: list[list[dict[str, Any]]] = [
    [{"insert": {"id": i, "city": "Oslo" if i % 3 else "Rome", "amount": f"{i}.50"}} for i in range(40)],
    [{"insert": {"id": 3, "city": "Lima", "amount": "7.00"}}, {"delete": {"id": 4}}],
    [{"insert": {"id": i, "city": "Rome", "amount": "1.00"}} for i in range(5, 15)],
]


def settings_for(location: Location) -> dict[str, Any]:
    """Small bounds, so that deltas lie both inside the ledger's rows and in files of their own."""
    return {"inline_bytes": 500, "storage_options": location.bucket.options if isinstance(location, ObjectPath) else {}}


def rows(hr: Any, name: str, epoch: int | None = None) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}", epoch=epoch).to_pylist())


@pytest.mark.parametrize("location", ["disk", "object store"], indirect=True)
def test_a_home_lives_at_either_location(location: Location, spark: SparkSession) -> None:
    settings = settings_for(location)
    past: dict[int, Counter[tuple[Any, ...]]] = {}
    with headrace.open(str(location), spark=spark, **settings) as hr:
        hr.execute("""
            CREATE TABLE orders (id INT PRIMARY KEY, city STRING, amount DECIMAL(10,2));
            CREATE VIEW revenue AS SELECT city, count(*) AS orders, max(amount) AS most FROM orders GROUP BY city;
        """)
        for number, changes in enumerate(EPOCHS):
            receipt = hr.apply({"orders": changes}, key=f"call-{number}")
            past[receipt.epoch] = rows(hr, "revenue")
            if number == 1:
                hr.fold()
        hr.execute("ALTER TABLE orders ADD COLUMN note STRING")
        assert hr.verify().ok
        with pytest.raises(HomeBusy, match="in use"):
            headrace.open(str(location), spark=spark, **settings)
        with headrace.open(str(location), spark=spark, read_only=True, **settings) as beside:
            assert rows(beside, "revenue") == rows(hr, "revenue")
    with headrace.open(str(location), spark=spark, **settings) as hr:
        assert hr.verify().ok
        again = hr.apply({"orders": EPOCHS[0]}, key="call-0")
        assert again.epoch in past
        for epoch, held in past.items():
            assert rows(hr, "revenue", epoch) == held
        hr.fold()
        table = delta_table(location / "tables" / "revenue").to_pyarrow_table().to_pylist()
        assert Counter(tuple(row.values()) for row in table) == rows(hr, "revenue")


def test_a_replaced_owner_cannot_commit_and_loses_nothing(location: Location, spark: SparkSession) -> None:
    with headrace.open(str(location), spark=spark, **settings_for(location)) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        hr.apply({"t": [{"insert": {"id": 1}}]})
        successor = Ledger(location, 0)
        successor.open()
        successor.claim(99)
        with pytest.raises(OwnerLost):
            hr.apply({"t": [{"insert": {"id": 2}}]})
    with headrace.open(str(location), spark=spark, **settings_for(location)) as hr:
        assert rows(hr, "t") == Counter([(1,)])
        hr.apply({"t": [{"insert": {"id": 3}}]})


def test_a_running_home_is_backed_up_to_the_other_place(
    location: Location, other: Location, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = next(one.bucket.options for one in (location, other) if isinstance(one, ObjectPath))
    with headrace.open(str(location), spark=spark, storage_options=options) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        receipt = hr.apply({"t": [{"insert": {"id": 1}}]})
        assert hr.backup(str(other / "copy"))["epoch"] == receipt.epoch
    monkeypatch.setenv("HEADRACE_STORAGE_OPTIONS", json.dumps(options))
    restore_home(str(other / "copy"), str(other / "again"))
    assert inspect_home(str(other / "again")).ok
    with headrace.open(str(other / "again"), spark=spark) as hr:
        assert rows(hr, "t") == Counter([(1,)])


@pytest.fixture
def other(location: Location, tmp_path: Path, request: pytest.FixtureRequest) -> Location:
    """A location of the other making."""
    if isinstance(location, ObjectPath):
        return tmp_path
    return request.getfixturevalue("object_store").location(f"{tmp_path.name}-other")
