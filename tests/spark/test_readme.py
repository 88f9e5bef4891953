from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import Headrace
from headrace.cli.main import run
from headrace.cli.show import show_csv

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/reference/changefeeds.md",
    "docs/reference/changes.md",
    "docs/reference/flows.md",
    "docs/reference/python.md",
)


def block(page: str, language: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page} has no {language} block"
    return found[1]


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_a_page_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block(page, "python"), page, "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == block(page, "text")


def test_the_shell_example_runs_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    verbs = [
        re.sub(r"\s+#.*", "", line) for line in re.findall(r"^headrace .*", (ROOT / "README.md").read_text(), re.M)
    ]
    shown = verbs[: verbs.index("headrace serve")]
    assert shown[0] == "headrace init shop && cd shop"
    for line in shown:
        with pytest.raises(SystemExit) as ended:
            run(shlex.split(line.removesuffix(" && cd shop"))[1:])
        assert not ended.value.code, line
        if line.endswith(" && cd shop"):
            monkeypatch.chdir(tmp_path / "shop")
    said = capsys.readouterr().out
    assert "update_postimage" in said
    assert "every view equals its full recompute" in said


def test_the_statements_of_the_reference_give_what_it_says(home: Headrace, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/reference/sql.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```sql\n(.*?)^```$(?:\n\n```csv\n(.*?)^```$)?", text, re.DOTALL | re.MULTILINE)
    assert len(shown) > 5
    for sql, expected in shown:
        result = home.execute(sql)
        assert isinstance(result, pa.Table) == bool(expected), sql
        if isinstance(result, pa.Table):
            show_csv(result)
            assert capsys.readouterr().out == expected, sql
