"""Changes of columns over a home in memory, whose tables a plain function alters: what is asked for, and when."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from headrace.catalog.catalog import Table
from headrace.catalog.columns import Columns, converted
from headrace.catalog.make import make_table
from headrace.errors import RelationNameError
from headrace.intake.table import TableContract
from headrace.sources import schema_changes
from headrace.sql.syntax import AddColumn, AlterColumnType, DropColumn, DropNotNull
from tests.debezium_events import envelope, envelope_schema, field
from tests.small_engine import Host
from tests.unit.test_raw_kept import home, running
from tests.waiting import until

TYPES: dict[str, DataType] = {"bigint": LongType(), "int": IntegerType(), "string": StringType()}
ID, N, BIG, WORDS, Q = (
    field("id", "int64"),
    field("n", "int32"),
    field("n", "int64"),
    field("n", "string"),
    field("q", "int64"),
)


def alter(core: Any, *statements: Any) -> None:
    """The columns of a table are changed; those called read_by_views are not dropped."""
    old: Table = core.catalog.table(statements[0].table)
    fields, ids = list(old.schema.fields), list(old.ids)
    for one in statements:
        names = [field.name for field in fields]
        if isinstance(one, AddColumn):
            fields.append(StructField(one.definition.spelled, TYPES[one.definition.type_text]))
            ids.append(max([*ids, 100]) + 1)
            continue
        index = names.index(one.column_name)
        if isinstance(one, DropColumn):
            if one.column_name == "n":
                raise RelationNameError("column n of t cannot be dropped", detail="It is read by v.", hint="drop it")
            del fields[index], ids[index]
        elif isinstance(one, AlterColumnType):
            if one.type_text == "string":
                raise RelationNameError("string does not hold all of its values")
            fields[index] = StructField(one.column_name, TYPES[one.type_text], fields[index].nullable)
        else:
            assert isinstance(one, DropNotNull)
            fields[index] = replace_nullable(fields[index])
    contract = TableContract(old.name, StructType(fields), old.contract.key)
    table = make_table(contract, ids)
    written, wanted = (Columns(0, 0, one.schema, one.ids) for one in (old, table))
    for part in old.store.snapshot().parts():
        table.store.apply(converted(part.rows, part.weights, written, wanted))
    table.positions = old.positions
    core.catalog = core.catalog.having(table)
    core.epoch += 1


def replace_nullable(one: StructField) -> StructField:
    return StructField(one.name, one.dataType, True)


def adopt(core: Any, tables: list[Table]) -> None:
    core.catalog = core.catalog.having(*tables)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(schema_changes, "alter_table", alter)
    monkeypatch.setattr(schema_changes, "adopt", adopt)
    made = home()
    kept = make_table(TableContract("t", StructType([StructField("id", LongType(), False), _N]), ("id",)))
    made.catalog = replace(made.catalog.having(kept))
    return made


_N = StructField("n", IntegerType(), False)


def put(log: list[bytes], fields: list[Any], at: int | None = None, **row: Any) -> None:
    lsn = 1000 + (len(log) if at is None else at)
    payload = envelope("c", None, row, source={"lsn": lsn, "sequence": json.dumps(["1", str(lsn)]), "ts_us": lsn})
    log.append(json.dumps({"schema": envelope_schema(fields), "payload": payload}).encode())


def names(host: Host) -> list[str]:
    return host.catalog.table("t").schema.names


def settled(runner: Any, count: int) -> bool:
    return runner.status.progress.received == count or runner.status.state == "Error"


def test_lenient(host: Host) -> None:
    log: list[bytes] = []
    put(log, [ID, N], id=1, n=1)
    put(log, [ID, N, Q], id=2, n=2, q=3)
    put(log, [ID, BIG, Q], id=3, n=2**40, q=4)
    put(log, [ID, Q], id=4, q=5)
    put(log, [ID, WORDS, Q], id=5, n="five", q=6)
    put(log, [ID, BIG, Q], id=6, n=7, q=7)
    with running(host, log) as runner:
        until(lambda: settled(runner, 6))
        assert (runner.status.state, runner.status.error) == ("Running", None)
    assert names(host) == ["id", "n", "q", "n_string"]
    assert host.holds("t") == {
        (1, 1, None, None),
        (2, 2, 3, None),
        (3, 2**40, 4, None),
        (4, None, 5, None),
        (5, None, 6, "five"),
        (6, 7, 7, None),
    }
    assert host.holds("dead_letters") == set()
    # A restart knows what the source had: nothing changes.
    before = host.epoch
    put(log, [ID, BIG, Q], id=7, n=7, q=7)
    with running(host, log) as runner:
        until(lambda: settled(runner, 7))
    assert host.epoch == before + 1


def test_evolve_and_exception_stop_before_the_change(host: Host) -> None:
    log: list[bytes] = []
    put(log, [ID, N, Q], id=1, n=1, q=1)
    put(log, [ID, N], id=2, n=2)
    put(log, [ID], id=3)
    with running(host, log, schema_change="evolve") as runner:
        until(lambda: settled(runner, 3))
        assert runner.status.progress.received == 2
        told = str(runner.status.error)
    assert "column n was dropped" in told
    assert "It is read by v." in told
    assert names(host) == ["id", "n"]
    put(log, [ID, N, Q], id=4, n=2, q=1)
    del log[2]
    with running(host, log, schema_change="exception") as runner:
        until(lambda: settled(runner, 4))
        assert "column q BIGINT was added" in str(runner.status.error)
    assert {row[0] for row in host.holds("t")} == {1, 2}


def test_late_records_and_ignored_changes_change_nothing(host: Host) -> None:
    log: list[bytes] = []
    put(log, [ID, N, Q], at=1, id=1, n=1, q=1)
    put(log, [ID, N], at=10, id=2, n=2)
    put(log, [ID, N, Q], at=5, id=3, n=3, q=3)
    put(log, [ID, N], at=11, id=4, n=4)
    with running(host, log, schema_change="evolve") as runner:
        until(lambda: settled(runner, 4))
        assert runner.status.error is None
    assert host.holds("t") == {(1, 1), (2, 2), (3, 3), (4, 4)}
    put(log, [ID, N, Q], at=12, id=5, n=5, q=5)
    log.append(json.dumps(envelope("c", None, {"id": 6, "n": 6, "z": 1}, source={"lsn": 2000})).encode())
    with running(host, log, schema_change="ignore") as runner:
        until(lambda: settled(runner, 6))
        assert runner.status.error is None
    assert names(host) == ["id", "n"]
    assert host.holds("dead_letters") == set()
    after = [json.loads(row[3]) for row in host.holds("s_raw") if row[0].endswith("-6")]
    assert after == [{"id": 6, "n": 6, "z": 1}]
