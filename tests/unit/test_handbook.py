"""The handbook and the threat model name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/handbook.md", "docs/reference/threat-model.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 10
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_row_of_the_tables_names_one() -> None:
    for page in PAGES:
        rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        table = [line for line in rows if line.count("|") == (5 if "handbook" in page else 4)]
        told = [line for line in table if not line.startswith(("| what |", "| threat |", "| question |", "| role |"))]
        without = [line[:60] for line in told if "tests/" not in line and "make " not in line]
        assert [line for line in without if "Beside" not in line and not _is_comparison(line)] == []


def _is_comparison(line: str) -> bool:
    text = (ROOT / "docs/handbook.md").read_text(encoding="utf-8")
    return line in text.partition("## Beside its peers")[2]


def test_the_targets_that_are_named_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)`", (ROOT / page).read_text(encoding="utf-8")))
        assert named <= set(targets)
