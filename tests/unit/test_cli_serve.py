"""`headrace serve` where it cannot: a port that is taken, a home that another serves; told before anything begins."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.owner.control import Control
from headrace.owner.ownership import take_ownership
from tests.command_line import code_of


def test_a_port_that_is_taken_is_told_before_a_home_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        home = tmp_path / "new"
        assert code_of("serve", "--home", str(home), "--port", str(port)) == 1
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in told
    assert "--port" in told
    assert not home.exists()


def test_a_home_in_use_is_told_with_where_it_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    control = Control({"address": lambda: {"url": "http://127.0.0.1:8099"}})
    try:
        ownership.announce(control.address)
        assert code_of("serve", "--home", str(tmp_path), "--port", "0") == 1
        told = capsys.readouterr().err
        assert "It serves it at http://127.0.0.1:8099." in told
        assert "--standby" in told
        assert "read_only" not in told
    finally:
        control.close()
        ownership.release()


def test_an_owner_that_serves_nothing_is_named_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    control = Control({})
    try:
        ownership.announce(control.address)
        assert code_of("serve", "--home", str(tmp_path), "--port", "0") == 1
        told = capsys.readouterr().err
        assert "is in use" in told
        assert "It serves it" not in told
    finally:
        control.close()
        ownership.release()


def test_a_home_that_nobody_serves_is_named_by_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("status", "--check", "--home", str(tmp_path)) == 2
    told = capsys.readouterr().out
    assert f"broken home {tmp_path}: It is not served: no process has it open; headrace serve --home {tmp_path}" in told
