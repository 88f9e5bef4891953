"""The verbs of the command line, run on a home that is stood in for."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.cli.main import run
from headrace.errors import StatementError


@dataclass
class StandInHome:
    """Answers like an open home, without Spark."""

    epoch: int = 7
    executed: list[str] = field(default_factory=list)
    opened_with: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> StandInHome:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def query(self, sql: str, epoch: int | None = None) -> pa.Table:
        if "nonsense" in sql:
            raise StatementError("unexpected word", detail="Found nonsense.", hint="say SELECT", line=1, column=3)
        return pa.table({"id": [1, 2], "price": [Decimal("1.50"), None]})

    def execute(self, sql: str) -> object:
        self.executed.append(sql)
        if sql.startswith("SHOW"):
            return pa.table({"name": [sql.split()[1].lower()]})
        if sql.startswith("INSERT"):
            return headrace.Receipt(
                epoch=8, applied={"t": 2}, stale={"t": 1}, dead={}, seconds=0.25, stages={"commit": 0.01}
            )
        return None

    def changes(self, name: str, since: int = 0, until: int | None = None) -> pa.Table:
        return pa.table({"name": [name], "since": [since], "until": pa.array([until], pa.int64())})

    def explain(self, name: str) -> object:
        class Explanation(SimpleNamespace):
            def __str__(self) -> str:
                return f"{name}: whole"

        return Explanation(incremental=False, reasons=["a window without PARTITION BY"])

    def fold(self) -> dict[str, object]:
        return {"epoch": 7, "folded": {"t": 3, "t#0": 9, "_headrace_clock": 1}, "oldest": 2, "seconds": 0.5}

    def verify(self, name: str | None = None) -> object:
        differences = ["bad: one row too many"] if name == "bad" else []
        return SimpleNamespace(ok=name != "bad", differences=differences, imbalances=[])


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    return int(ended.value.code or 0)
