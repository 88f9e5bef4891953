from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.readme import with_figures
from headrace.capture.debezium.allowed import ALLOWED
from headrace.catalog.catalog import Catalog
from headrace.sources.running import shown
from headrace.sql.statements import VERBS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_has_the_figures_that_were_measured() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_figures(readme) == readme


def test_the_tour_and_the_picture_name_every_folder() -> None:
    package = ROOT / "src" / "headrace"
    folders = sorted(path.parent.relative_to(package).as_posix() for path in package.glob("*/__init__.py"))
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    assert [folder for folder in folders if f"[{folder}/](" not in tour] == []
    picture = (ROOT / "README.md").read_text(encoding="utf-8").partition("```mermaid")[2].partition("```")[0]
    drawn = sorted(set(re.findall(r"\b([a-z_]+)/", picture.replace("<br/>", " "))))
    assert [folder for folder in drawn if folder not in folders] == []
    # What all others stand on is left out of the picture.
    assert sorted(set(folders) - set(drawn)) == ["access", "ir", "local", "owner", "spark"]


def test_the_reference_of_sql_knows_every_verb() -> None:
    page = (ROOT / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")
    read = {*VERBS, "REPLAY", "DISCARD"} - {"WITH", "VALUES", "TABLE", "FROM", "DESC"}
    assert sorted(verb for verb in read if not re.search(rf"`?{verb}\b", page)) == []


def test_the_reference_of_sources_has_every_column_and_every_setting_of_debezium() -> None:
    page = (ROOT / "docs" / "reference" / "sources.md").read_text(encoding="utf-8")
    columns = page.partition("## What SHOW SOURCES tells")[2].partition("\n## ")[0]
    nothing: Any = SimpleNamespace(catalog=Catalog())
    assert [name for name in shown(nothing, nothing).column_names if f"`{name}`" not in columns] == []
    settings = page.partition("### Settings of Debezium")[2].partition("\n## ")[0]
    assert sorted(set(re.findall(r"`([\w.]+)`", settings))) == sorted(ALLOWED)
