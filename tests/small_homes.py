"""Homes of either making, made without Spark: a table t with hidden state, one row of each per epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headrace.ledger.base import Base, BaseSchema
from headrace.ledger.ledger import Ledger, summed
from headrace.ledger.names import is_hidden, plain_name
from headrace.state.delta import Delta, consolidate, weights_of
from headrace.storage.objects import Location, name_below, size_of

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
TABLE, STATE = "t", "t#tombstones"
BASE_SCHEMAS = {TABLE: BaseSchema(("id", "name"), SCHEMA), STATE: BaseSchema(("c0", "c1"), SCHEMA, hidden=True)}
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
Rows = list[tuple[int, str]]


def row(epoch: int, width: int = 10) -> Delta:
    columns = [pa.array([epoch], pa.int64()), pa.array(["x" * width], pa.string())]
    return consolidate(pa.table(columns, schema=SCHEMA), weights_of([1]))


def opened(home: Location, inline_bytes: int = 4096) -> Ledger:
    ledger = Ledger(home, inline_bytes)
    ledger.open()
    return ledger


def make_home(home: Location, epochs: int, inline_bytes: int = 4096) -> Ledger:
    ledger = opened(home, inline_bytes)
    ledger.claim(1)
    for epoch in range(1, epochs + 1):
        add_epoch(ledger, epoch)
    return ledger


def add_epoch(ledger: Ledger, epoch: int, width: int = 10) -> None:
    head = {"define": [{"kind": "table", "name": TABLE}], "reset": [TABLE, STATE]} if epoch == 1 else {}
    at = BEGIN + timedelta(seconds=epoch)
    ledger.commit(epoch, at, head, {TABLE: row(epoch, width), STATE: row(epoch, width)})


def base_folder(home: Location, name: str) -> Location:
    return home / ("state" if is_hidden(name) else "tables") / plain_name(name)


def fold(home: Location, ledger: Ledger, epoch: int) -> None:
    for name, base_schema in BASE_SCHEMAS.items():
        base = Base(base_folder(home, name))
        net = summed(SCHEMA, list(ledger.entries(name, base.epoch, epoch)))
        if base.exists:
            base.fold(base_schema, net, epoch)
        else:
            base.replace(base_schema, iter([net]), epoch)


def rows_at(home: Location, epoch: int) -> Rows:
    """The table at an epoch, from the log alone."""
    return _rows(summed(SCHEMA, list(opened(home).entries(TABLE, 0, epoch))))


def rows_of_base(home: Location, name: str = TABLE) -> Rows:
    return sorted(
        one for content in Base(base_folder(home, name)).contents(BASE_SCHEMAS[name]) for one in _rows(content)
    )


def files_of(folder: Location) -> dict[str, int]:
    """Every file with its size: equal before and after means that nothing was left behind."""
    return {name_below(folder, path): size_of(path) for path in folder.rglob("*") if path.is_file()}


def flip(path: Location, position: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 0xFF
    path.write_bytes(content)


def cut(path: Location, share: float = 0.5) -> bytes:
    """Cut a file off; what it was before."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return content


def _rows(content: Delta) -> Rows:
    return sorted((one["c0"], one["c1"]) for one in content.rows.to_pylist())
