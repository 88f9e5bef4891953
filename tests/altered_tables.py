"""Homes whose tables are altered: opened again and again, with every log, base and view held against what there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.errors import HeadraceError
from headrace.face import home_of
from tests.changes import rows

SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
Reopen = Callable[[], Any]


def summed(hr: Any, name: str) -> list[str]:
    """All changes from the start, added up, each row as it is shown."""
    total: Counter[str] = Counter()
    for row in hr.changes(name).to_pylist():
        total[repr(tuple(value for column, value in row.items() if column[0] != "_"))] += SIGNS[row["_change_type"]]
    assert all(count >= 0 for count in total.values())
    return sorted(total.elements())


def based(hr: Any, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What an outside reader finds in a base."""
    table = DeltaTable(str(home_of(hr).path / "tables" / name)).to_pyarrow_table()
    return table.column_names, sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def agree(hr: Any) -> None:
    """Every view equals its recompute, and every log comes to what its relation holds."""
    verdict = hr.verify()
    assert verdict.ok, str(verdict)
    for name in home_of(hr).core.catalog.relations:
        assert summed(hr, name) == [repr(row) for row in rows(hr, f"SELECT * FROM {name}")], name


def everywhere(reopen: Reopen, check: Callable[[Any], None]) -> None:
    """A check after the home is opened again from the log, and from the bases, which outside readers agree with."""
    hr = reopen()
    check(hr)
    hr.fold()
    for name, relation in home_of(hr).core.catalog.relations.items():
        assert based(hr, name) == (relation.schema.names, rows(hr, f"SELECT * FROM {name}")), name
    check(reopen())


def refused(hr: Any, sql: str, kind: type[HeadraceError], *words: str) -> None:
    """A statement is refused in these words, with what to do, and nothing has changed."""
    before = hr.epoch
    with pytest.raises(kind) as caught:
        hr.execute(sql)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint
    assert hr.epoch == before
