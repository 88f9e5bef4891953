"""A process that owns a home of tables and its sources, and does what it is told: a statement a line, until killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from pyspark.sql.types import StructType

from tests.bare_home import BareHome


class Owner:
    """Such a process, asked from outside."""

    def __init__(self, home: Path, table: str, columns: StructType, log: Path) -> None:
        told = [str(home), table, columns.json()]
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.capture_child", *told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._ask({}) == "open"

    def execute(self, sql: str) -> list[dict[str, Any]]:
        """What a statement answers."""
        return self._ask({"execute": sql})

    def query(self, sql: str) -> list[dict[str, Any]]:
        """What a query answers."""
        return self._ask({"query": sql})

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, wanted: dict[str, str]) -> Any:
        asked, answers = _pipes(self._process)
        if wanted:
            asked.write(json.dumps(wanted) + "\n")
            asked.flush()
        line = answers.readline()
        assert line, "the owner of the home has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["told"]


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def main() -> None:
    """Own the home, and answer."""
    path, table, columns = sys.argv[1:]
    home = BareHome(Path(path), owner_timeout=60)
    home.create_table(table, StructType.fromJson(json.loads(columns)), ("id",))
    print(json.dumps({"told": "open"}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            answer: Any = home.query(wanted["query"]) if "query" in wanted else home.execute(wanted["execute"])
            told = answer.to_pylist() if hasattr(answer, "to_pylist") else []
            print(json.dumps({"told": told}, default=str), flush=True)
        except Exception as error:
            print(json.dumps({"error": repr(error)}), flush=True)
    home.close()


if __name__ == "__main__":
    main()
