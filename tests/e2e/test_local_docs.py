from __future__ import annotations

import pytest

from headrace.cli.local import local
from tests.spark.test_readme import ROOT, block

PAGE = "docs/how-to/run-local-servers.md"


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block(PAGE, "python"), PAGE, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == block(PAGE, "text")


def test_the_reference_names_what_servers_offer() -> None:
    from headrace.local import Server, Servers

    page = (ROOT / "docs/reference/local.md").read_text()
    offered = [name for kind in (Servers, Server) for name in vars(kind) if not name.startswith("_")]
    assert [
        name for name in offered if f"`{name}" not in page and name not in ("begin", "is_ready", "wait", "discard")
    ] == []
    assert [command.name or command.callback.__name__ for command in local.registered_commands if command.callback] == [
        "up",
        "down",
        "status",
        "capture",
        "logs",
    ]
