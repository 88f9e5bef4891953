"""Secrets by reference: only what may be a secret is looked up, and what it is stands in no error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.connector import Connector, Description, Position
from headrace.catalog.catalog import Catalog, Source
from headrace.epoch.loop import Loop
from headrace.errors import SourceError
from headrace.sources.define import following_source
from headrace.sources.running import Sources
from headrace.sources.secrets import looked_up, refuse_plain_secrets
from headrace.sources.system_tables import dead_letters_table, progress_table, raw_table
from headrace.sql.statements import CreateSource
from tests.small_engine import Host, table
from tests.small_sources import runner_of
from tests.waiting import until

SECRET = "hunter2, and more of it"
LISTED = "kafka.sasl.password"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", SECRET)


def host_with(*names: str) -> Host:
    return Host(table("t"), progress_table(), dead_letters_table(), *map(raw_table, names))


def statement(connector: str, where: str, options: dict[str, Any]) -> CreateSource:
    return CreateSource(
        sql="",
        line=1,
        column=1,
        name="s",
        table="t",
        connector=connector,
        location=where,
        options=tuple(options.items()),
        if_not_exists=False,
    )


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("kafka", {"format": "env:SHOP_SECRET"}),
        ("kafka", {"time_precision": "env:SHOP_SECRET"}),
        ("kafka", {"include_schema_changes": "env:SHOP_SECRET"}),
        ("kafka", {"max_records": "env:SHOP_SECRET"}),
        ("kafka", {"start": "env:SHOP_SECRET"}),
        ("kafka", {"order": "env:SHOP_SECRET"}),
        ("postgres", {"slot": "env:SHOP_SECRET"}),
        ("postgres", {"snapshot": "env:SHOP_SECRET"}),
    ],
)
def test_no_option_tells_what_the_environment_has(connector: str, options: dict[str, Any]) -> None:
    where = {"kafka": "localhost:1/t", "postgres": "postgresql://u@localhost/d"}[connector]
    catalog: Catalog = host_with("s").catalog
    with pytest.raises(SourceError) as refused:
        following_source(catalog, statement(connector, where, options))
    assert "hunter2" not in str(refused.value)
    assert "env:shop_secret" in str(refused.value).lower()


def test_what_is_no_small_file_of_text_is_no_secret(tmp_path: Path) -> None:
    pipe, large, bytes_ = tmp_path / "pipe", tmp_path / "large", tmp_path / "bytes"
    os.mkfifo(pipe)
    large.write_bytes(b"a" * 70_000)
    bytes_.write_bytes(b"\xff\xfe")
    # A pipe would be waited for, and zeros are without end.
    for path in (pipe, Path("/dev/zero"), large, bytes_, tmp_path, Path("/nowhere\0")):
        with pytest.raises(SourceError, match="cannot be read"):
            looked_up({LISTED: f"file:{path}"})
    kept = tmp_path / "kept"
    kept.write_text("abc\n")
    assert looked_up({LISTED: f"file:{kept}"}) == {LISTED: "abc"}


def test_a_key_is_a_secret_and_the_address_of_a_token_is_none() -> None:
    for name in ("kafka.ssl.key.pem", "kafka.sasl.oauthbearer.client.credentials.secret", "registry_token"):
        with pytest.raises(SourceError, match="would keep a secret"):
            refuse_plain_secrets({name: "plain"})
    refuse_plain_secrets({"kafka.sasl.oauthbearer.token.endpoint.url": "https://issuer/token"})


def test_what_a_library_says_of_a_secret_is_told_without_it(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(description: Description, _: Position) -> Any:
        raise ValueError(f"bad value {description.options[LISTED]!r}")

    host = host_with("s")
    options = {LISTED: "env:SHOP_SECRET"}
    source = Source("s", "t", "listed", "", "", options, state="Running")
    connector = Connector("LISTED", {}, refuse)
    runner = runner_of(Loop(host), source, connector)
    runner.start()
    until(lambda: runner.status.state == "Error")
    runner.stop()
    assert runner.status.error == "ValueError: bad value 'env:SHOP_SECRET'"
    assert "hunter2" not in caplog.text


@pytest.mark.slow
@pytest.mark.thorough
def test_a_source_without_its_secret_is_in_nobody_elses_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_with("a", "b")
    without = Source("a", "t", "kafka", "localhost:1/x", "", {LISTED: "env:NOT_SET_HERE"}, state="Running")
    other = Source("b", "t", "files", str(tmp_path), "", {}, state="Running")
    host.catalog.sources.update({"a": without, "b": other})
    sources = Sources(Loop(host))  # pyright: ignore[reportArgumentType]
    try:
        sources.reconcile()
        told = sources.status_of(without)
        assert (told.state, sources.status_of(other).state) == ("Error", "Running")
        assert "The environment has no NOT_SET_HERE" in str(told.error)
        (tmp_path / "1.ndjson").write_text('{"insert": {"id": 1, "n": 1}}\n')
        until(lambda: len(list(host.holds("t"))) == 1)
        # It is tried again when it is told to go on.
        monkeypatch.setenv("NOT_SET_HERE", "there now")
        sources.restart("a")
        assert sources.status_of(without).state == "Running"
    finally:
        sources.close()
