"""What is told of sources: their options, who else fills their tables, and what cannot be changed of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.catalog.catalog import Source
from headrace.errors import SourceError
from headrace.sources.running import shared_tables
from tests.bare_home import BareHome
from tests.small_engine import Host, table

COLUMNS = StructType([StructField("id", LongType(), False)])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[BareHome]:
    opened = BareHome(tmp_path / "home")
    opened.create_table("t", COLUMNS, ("id",))
    opened.create_table("bag", COLUMNS)
    for one in ("in", "other"):
        (tmp_path / one).mkdir()
    yield opened
    opened.close()


def shown(home: BareHome) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in home.execute("SHOW SOURCES").to_pylist()}


def test_the_options_of_a_source_are_told_with_references_for_secrets(
    home: BareHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "hunter22")
    home.execute(
        f"CREATE SOURCE s INTO t FROM FILES '{tmp_path / 'in'}' "
        "WITH (format = 'raw', max_records = 7, registry_token = 'env:SHOP_TOKEN')"
    )
    told = shown(home)["s"]
    assert json.loads(told["options"]) == {"format": "raw", "max_records": 7, "registry_token": "env:SHOP_TOKEN"}
    assert "hunter22" not in str(told)


def test_two_sources_of_one_table_are_told(home: BareHome, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.execute(f"CREATE SOURCE s INTO t FROM FILES '{tmp_path / 'in'}'")
    assert shown(home)["s"]["warning"] is None
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        home.execute(f"CREATE SOURCE s2 INTO t FROM FILES '{tmp_path / 'other'}'")
    assert [one.getMessage() for one in caplog.records] == ["source s2: t is filled by source s too"]
    told = shown(home)
    assert [told[name]["warning"] for name in ("s", "s2")] == [
        "t is filled by source s2 too",
        "t is filled by source s too",
    ]
    home.execute("DROP SOURCE s2")
    assert shown(home)["s"]["warning"] is None


def test_a_table_without_a_key_has_what_both_bring_twice(home: BareHome, tmp_path: Path) -> None:
    for name, folder in (("s", "in"), ("s2", "other")):
        home.execute(f"CREATE SOURCE {name} INTO bag FROM FILES '{tmp_path / folder}'")
    assert "it has no key, so a row that both bring is there twice" in shown(home)["s"]["warning"]


@pytest.mark.parametrize(
    ("connector", "location", "options"),
    [
        ("kafka", "localhost:1/shop.public.t", {}),
        ("postgres", "postgresql://reader@localhost:1/shop", {"tables": "public.orders, public.T"}),
    ],
)
def test_tables_that_are_named_but_have_not_come_are_told_too(
    connector: str, location: str, options: dict[str, str]
) -> None:
    host = Host(table("t"))
    first = Source("s", "t", "files", "/in", "", {}, state="Running")
    second = Source("s2", "", connector, location, "", options, state="Running")
    host.catalog = replace(host.catalog, sources={"s": first, "s2": second})
    core: Any = host
    assert shared_tables(core)["s2"] == "t is filled by source s too"
    done = Source("s", "t", "delta", "/in", "snapshot", {}, state="Done")
    host.catalog = replace(host.catalog, sources={"s": done, "s2": second})
    assert shared_tables(core) == {}


def test_a_source_is_not_moved_elsewhere(home: BareHome, tmp_path: Path) -> None:
    home.execute(f"CREATE SOURCE s INTO t FROM FILES '{tmp_path / 'in'}'")
    with pytest.raises(SourceError, match="source s stays where it is") as refused:
        home.execute(f"ALTER SOURCE s SET (location = '{tmp_path / 'other'}')")
    assert refused.value.hint.startswith("DROP SOURCE s, which keeps its rows")
