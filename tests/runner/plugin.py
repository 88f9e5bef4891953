"""pytest plugin that writes the selected tests and each of their phases to the file named by TEST_RESULTS_FILE."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from tests.runner.results import Outcome, Phase

FILE = "TEST_RESULTS_FILE"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Append the tests that are going to run, so that a test that never ran is noticed."""
    for item in session.items:
        _append(Phase(item.nodeid, "collected", "passed", 0.0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append one phase of a test."""
    _append(Phase(report.nodeid, report.when, cast(Outcome, report.outcome), report.duration, _text(report)))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Append a file that cannot be imported, or that is skipped as a whole."""
    if report.outcome != "passed":
        _append(Phase(report.nodeid, "teardown", cast(Outcome, report.outcome), 0.0, _text(report)))


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.outcome == "failed":
        captured = [f"--- {title} ---\n{content}" for title, content in report.sections]
        return "\n".join([report.longreprtext, *captured])
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return ""


def _append(phase: Phase) -> None:
    with open(Path(os.environ[FILE]), "a") as file:
        file.write(phase.to_json() + "\n")
