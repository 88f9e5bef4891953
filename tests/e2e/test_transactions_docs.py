"""The page about the support desk says what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sql.statements import parse
from tests.spark.test_readme import ROOT, block

PAGE = "docs/how-to/serve-transactions.md"


def test_the_example_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "transactions"))
    exec(compile(block(PAGE, "python"), PAGE, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == block(PAGE, "text")


def test_the_page_has_the_tables_of_the_example() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    tables = (ROOT / "examples" / "transactions" / "tables.sql").read_text(encoding="utf-8")
    assert tables.partition("\n")[2] in text
    assert len(parse(block(PAGE, "sql"))) == 5
