"""Event stores of a project, held against those that a home has: made, known, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.events.define import register_type
from headrace.project.definitions import Definitions, read_definitions
from headrace.project.event_stores import is_known, new_tables, refuse_other_store, type_of, with_stores
from headrace.project.folder import open_project
from headrace.sql.statements import CreateEventStore, CreateEventType
from tests.small_events import SmallStore


def definitions(folder: Path, sql: str) -> Definitions:
    folder.mkdir(exist_ok=True)
    (folder / "headrace.yml").write_text("name: p\n")
    (folder / "a.sql").write_text(sql)
    found = read_definitions(open_project(folder))
    assert not found.problems
    return found


def refusals(store: SmallStore, found: Definitions) -> list[str]:
    """What is said against each definition, as a run asks before it touches anything."""
    core: Any = store.host
    told: list[str] = []
    for one in found.all:
        try:
            if isinstance(one.statement, CreateEventStore):
                refuse_other_store(core, one.statement, found)
            elif isinstance(one.statement, CreateEventType):
                is_known(core, one.statement, type_of(with_stores(core.catalog, found), one.statement))
        except HeadraceError as error:
            told.append(error.message)
    return told


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path / "keys")


SAME = "CREATE EVENT STORE events WITH (snapshot_events = 0);"


def test_a_store_that_is_there_is_not_made_again_and_a_new_one_comes_whole(store: SmallStore, tmp_path: Path) -> None:
    found = definitions(tmp_path / "p", f"{SAME} CREATE EVENT STORE fresh WITH (data = 'map')")
    assert refusals(store, found) == []
    made = {one.name: [table.name for table in new_tables(store.host.catalog, one)] for one in found.stores}
    assert made["events"] == []
    assert made["fresh"][:2] == ["fresh", "fresh_aggregates"]
    assert len(made["fresh"]) == 6
    assert "fresh_types" in with_stores(store.host.catalog, found)


def test_other_options_and_names_that_are_taken_are_told(store: SmallStore, tmp_path: Path) -> None:
    found = definitions(
        tmp_path / "p",
        "CREATE EVENT STORE events; CREATE EVENT STORE fresh; CREATE TABLE fresh_parked (a INT);"
        "CREATE EVENT STORE events_of_all; CREATE EVENT STORE odd WITH (data = 'variant')",
    )
    assert refusals(store, found) == [
        "event store events has other options in the home",
        "fresh_parked exists already",
        "no column of Headrace is a VARIANT at line 1, column 122",
    ]


def test_a_version_of_a_type_is_registered_once_and_never_otherwise(store: SmallStore, tmp_path: Path) -> None:
    register_type(store.loop, "events", "Born", '{"type": "object"}')
    core: Any = store.host
    same = "CREATE EVENT TYPE 'Born' FOR EVENT STORE events SCHEMA '{\"type\": \"object\"}'"
    (one,) = definitions(tmp_path / "p", SAME + same).types
    assert isinstance(one.statement, CreateEventType)
    assert is_known(core, one.statement, type_of(core.catalog, one.statement))
    found = definitions(
        tmp_path / "q",
        SAME + "CREATE EVENT TYPE 'Born' FOR EVENT STORE events SCHEMA '{\"type\": \"array\"}';"
        "CREATE EVENT TYPE 'Born' VERSION 2 FOR EVENT STORE events;"
        "CREATE EVENT TYPE 'X' FOR EVENT STORE absent; CREATE EVENT TYPE 'Y' FOR EVENT STORE events SCHEMA 'none'",
    )
    told = refusals(store, found)
    assert told[:2] == ["Born version 1 is registered already, otherwise", "there is no event store absent"]
    assert len(told) == 3
