"""The fixed views of the judge, read from views.sql."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.judge.schemas import TABLES

_HEAD = re.compile(r"^-- (C\d+) (\w+)\n-- (.*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One view: its number, its name, what it is about, its SELECT and the tables that it reads."""

    id: str
    name: str
    note: str
    sql: str
    tables: frozenset[str]

    @property
    def view(self) -> str:
        return f"{self.id.lower()}_{self.name}"


def tables_of(sql: str) -> frozenset[str]:
    """The tables named after FROM or JOIN (no case lists several after one FROM)."""
    names = re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", sql, re.IGNORECASE)
    return frozenset(name.lower() for name in names) & frozenset(TABLES)


@cache
def load_cases() -> tuple[Case, ...]:
    """All cases in the order of the file."""
    text = (Path(__file__).parent / "views.sql").read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    cases: list[Case] = []
    for head, end in zip(heads, ends, strict=True):
        sql = text[head.end() : end].strip().removesuffix(";")
        cases.append(Case(head[1], head[2], head[3], sql, tables_of(sql)))
    return tuple(cases)


def select_cases(only: str) -> tuple[Case, ...]:
    """The cases named in `C01,C05` (empty: all); an unknown name is an error."""
    cases = load_cases()
    wanted = [part.strip().upper() for part in only.split(",") if part.strip()]
    unknown = set(wanted) - {case.id for case in cases}
    if unknown:
        raise SystemExit(f"unknown cases: {', '.join(sorted(unknown))}")
    return tuple(case for case in cases if not wanted or case.id in wanted)
