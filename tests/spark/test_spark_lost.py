"""A home whose Spark ends goes on with another; in a process of its own, because the Spark of the tests is shared."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

# Each takes minutes of both cores; `make jvm-loss` runs the same checks.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

# The machine of the tests is busy, and a new Spark is slow at first; `make jvm-loss` holds callers to ten seconds.
ENVIRONMENT = {**os.environ, "HEADRACE_ANSWER_SECONDS": str(PATIENCE)}


def run(*ways: str, check: str = "jvm_loss") -> str:
    command = [sys.executable, "-m", f"tests.checks.{check}", *ways]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_700, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def test_homes_go_on_when_their_jvm_is_stopped() -> None:
    """Both that share it; /readyz tells of it, and nothing is left of the old one."""
    told = run("stop")
    assert "all right" in told
    assert "another is being started" in told


def test_honest_senders_go_on_beside_one_whose_changes_need_more_memory_than_there_is() -> None:
    """The others share an epoch with it once, at most; it is told to stop as soon as it was alone in one."""
    assert "poison: told to stop" in run(check="poison")


def test_a_given_spark_that_ends_is_told_and_a_stopped_jvm_does_not_outlive_its_killed_process() -> None:
    told = run("given", "orphan")
    assert "2 rows after the home was opened again" in told
    assert "gone after" in told
