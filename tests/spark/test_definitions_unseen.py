"""A view that is being made or replaced is not there yet: not for readers, and not for fold."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.face import home_of


def test_nobody_sees_a_view_before_its_epoch(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, g STRING, v INT)")
    home.execute("CREATE VIEW per_group AS SELECT g, MAX(v) AS x FROM t GROUP BY g")
    home.apply({"t": [{"insert": {"id": 1, "g": "a", "v": 3}}]})
    home.fold()
    seen: list[Any] = []
    commit = home_of(home).core.ledger.commit

    def look_and_commit(*arguments: Any) -> None:
        moment = home_of(home)._fold_inputs()
        changes = home.changes("per_group").drop_columns(["_commit_timestamp"]).to_pylist()
        seen.append((sorted(moment.stores), home.query("SELECT * FROM per_group").to_pylist(), changes))
        home.fold()
        commit(*arguments)

    before = sorted(home_of(home)._fold_inputs().stores)
    monkeypatch.setattr(home_of(home).core.ledger, "commit", look_and_commit)
    home.execute("CREATE VIEW other AS SELECT DISTINCT g FROM t")
    home.execute("CREATE OR REPLACE VIEW per_group AS SELECT g, v FROM t WHERE v > 1")
    (making, replacing) = seen
    change = {"g": "a", "x": 3, "_change_type": "insert", "_commit_version": 3}
    assert making == (before, [{"g": "a", "x": 3}], [change])
    assert replacing[1:] == ([{"g": "a", "x": 3}], [change])
    assert home.query("SELECT * FROM per_group").to_pylist() == [{"g": "a", "v": 3}]
    assert home.verify().ok


def test_a_definition_that_fails_leaves_what_was_there(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, g STRING, v INT)")
    home.execute("CREATE VIEW per_group AS SELECT g, MAX(v) AS x FROM t GROUP BY g")
    home.apply({"t": [{"insert": {"id": 1, "g": "a", "v": 3}}]})

    def fail(*_: Any) -> None:
        home.fold()
        raise RuntimeError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(home_of(home).core.ledger, "commit", fail)
        with pytest.raises(RuntimeError):
            home.execute("CREATE OR REPLACE VIEW per_group AS SELECT g, v FROM t")
    home.apply({"t": [{"insert": {"id": 2, "g": "a", "v": 5}}]})
    assert home.query("SELECT * FROM per_group").to_pylist() == [{"g": "a", "x": 5}]
    assert home.verify().ok
