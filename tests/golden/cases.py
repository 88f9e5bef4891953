"""Reading and running golden files.

A file is prose with cases. A case is a heading, a block of SQL whose last view is the one watched, a block with the
EXPLAIN text, and steps: a block of changes, one to a line and all of them one epoch, then a block with the delta they
make. Names are made unique when a case is run, so that all cases live in one home.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NOTHING = "(nothing)"

_HEADING = re.compile(r"^## (.+)$")
_FENCE = re.compile(r"^```(\w*)$")
_CREATE = re.compile(r"\bCREATE\s+(?:MATERIALIZED\s+)?(TABLE|VIEW)\s+(\w+)", re.IGNORECASE)
_SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Step:
    """One epoch of changes and the delta of the watched view."""

    changes: tuple[str, ...]
    delta: tuple[str, ...]

    def calls(self) -> dict[str, list[Any]]:
        """The changes by table."""
        together: dict[str, list[Any]] = {}
        for line in self.changes:
            for table, change in json.loads(line).items():
                together.setdefault(table, []).append(change)
        return together


@dataclass(frozen=True)
class Case:
    """One view and what becomes of it."""

    file: str
    title: str
    sql: str
    explain: str
    steps: tuple[Step, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All relations that the case makes."""
        return tuple(name for _, name in _CREATE.findall(self.sql))

    @property
    def view(self) -> str:
        """The relation whose deltas are shown."""
        return [name for kind, name in _CREATE.findall(self.sql) if kind.upper() == "VIEW"][-1]

    @property
    def query(self) -> str:
        """The query of the watched view."""
        last = next(one for one in reversed(self.sql.split(";")) if one.strip())
        return re.split(r"\bAS\b", last, maxsplit=1, flags=re.IGNORECASE)[1].strip()


def load(folder: Path = FOLDER) -> list[Case]:
    """All cases of all files."""
    return [case for path in sorted(folder.glob("*.md")) for case in read(path)]


def read(path: Path) -> list[Case]:
    """The cases of one file."""
    cases: list[Case] = []
    for title, blocks in _sections(path.read_text()):
        kinds = [kind for kind, _ in blocks]
        count = (len(blocks) - 2) // 2
        assert kinds == ["sql", "explain", *["changes", "delta"] * count], f"{path.name}, {title}: {kinds}"
        steps = tuple(Step(blocks[2 + 2 * i][1], blocks[3 + 2 * i][1]) for i in range(count))
        cases.append(Case(path.stem, title, "\n".join(blocks[0][1]), "\n".join(blocks[1][1]), steps))
    return cases


def _sections(text: str) -> Iterable[tuple[str, list[tuple[str, tuple[str, ...]]]]]:
    title: str | None = None
    blocks: list[tuple[str, tuple[str, ...]]] = []
    kind: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if fence and kind is None:
            kind, lines = fence.group(1), []
        elif fence:
            blocks.append((kind or "", tuple(lines)))
            kind = None
        elif kind is not None:
            lines.append(line)
        elif heading := _HEADING.match(line):
            if title is not None:
                yield title, blocks
            title, blocks = heading.group(1), []
    if title is not None:
        yield title, blocks


def write(path: Path, cases: Sequence[Case]) -> None:
    """Put the EXPLAIN texts and deltas of the cases into their file; everything else stays as it is."""
    wanted = iter([content for case in cases for content in (case.explain, *("\n".join(s.delta) for s in case.steps))])
    result: list[str] = []
    kind: str | None = None
    for line in path.read_text().splitlines():
        fence = _FENCE.match(line)
        if fence and kind is None:
            kind = fence.group(1)
            result.append(line)
            if kind in ("explain", "delta"):
                result.append(next(wanted))
        elif fence:
            kind = None
            result.append(line)
        elif kind not in ("explain", "delta"):
            result.append(line)
    path.write_text("\n".join(result) + "\n")


def renamed(case: Case, number: int) -> Case:
    """The case with names of its own."""
    own = {name: f"g{number}_{name}" for name in case.names}
    steps = tuple(replace(step, changes=tuple(_rename(line, own) for line in step.changes)) for step in case.steps)
    return replace(case, sql=_rename(case.sql, own), steps=steps)


def plain_names(text: str, number: int) -> str:
    """A text of the engine with the names that the file has."""
    return re.sub(rf"\bg{number}_(\w+)", r"\1", text)


def _rename(text: str, own: Mapping[str, str]) -> str:
    names = "|".join(map(re.escape, own))
    return re.sub(rf"\b({names})\b", lambda found: own[found.group(1)], text)


def feed(hr: Any, view: str, since: int) -> tuple[str, ...]:
    """The view's net change after an epoch, as the engine has it in its log."""
    total: Rows = Counter()
    for row in hr.changes(view, since=since).to_pylist():
        values = tuple(_frozen(value) for name, value in row.items() if not name.startswith("_"))
        total[values] += _SIGNS[row["_change_type"]]
    return lines(total)


def recomputed(hr: Any, query: str) -> Rows:
    """What Spark alone answers to the view's query now."""
    return Counter(tuple(_frozen(value) for value in row.values()) for row in hr.query(query).to_pylist())


def difference(before: Rows, after: Rows) -> tuple[str, ...]:
    """The delta between two answers of Spark."""
    total = Counter(after)
    total.subtract(before)
    return lines(total)


def lines(total: Rows) -> tuple[str, ...]:
    """Signed rows as text, rows in order and what goes before what comes."""
    shown = [(" | ".join(map(_shown, row)), weight) for row, weight in total.items() if weight]
    ordered = sorted(shown, key=lambda one: (one[0].split(" | "), one[1]))
    return tuple(f"{weight:+d} | {text}" for text, weight in ordered) or (NOTHING,)


def _frozen(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((name, _frozen(one)) for name, one in value.items())
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (datetime, date)):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value) if value != "" else "''"
