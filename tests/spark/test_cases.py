"""A fixed part of the judge's cases and sequences; `make judge` runs them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.rules import window_pieces
from tests.judge.cases import load_cases, select_cases
from tests.judge.run_cases import FAILING, LEAST_INCREMENTAL, Plan, run_generic, run_own, view_of
from tests.judge.trial import Trial

SOUND = tuple(case for case in load_cases() if case.id not in FAILING)
OWN = "C05,C27,C41,C51,C77,C103"
WINDOWS = "C73,C75,C77,C79,C81,C85,C97"


@pytest.fixture(scope="module")
def everything(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """One home with every case whose view never fails."""
    trial = Trial(spark, tmp_path_factory.mktemp("judge") / "home", map(view_of, SOUND))
    yield trial
    trial.close()


def check(trial: Trial, seen: int = 0) -> None:
    faults = trial.faults[seen:]
    shown = [f"{fault.view or 'home'} in {fault.where}\n{fault.text}" for fault in faults]
    assert not faults, "\n\n".join(shown)


@pytest.mark.slow
def test_every_view_is_right_over_nothing(everything: Trial) -> None:
    everything.judge_all("empty home")
    check(everything)


@pytest.mark.parametrize(
    "sequence", ["S14", *(pytest.param(name, marks=pytest.mark.slow) for name in ("S5", "S9", "S12", "S15"))]
)
def test_views_follow(everything: Trial, sequence: str) -> None:
    seen = len(everything.faults)
    run_generic(everything, Plan(SOUND, (sequence,), seed=7, fast=True, batches=2), sequence)
    check(everything, seen)


def test_most_views_are_incremental(everything: Trial) -> None:
    reasons: dict[str, list[str]] = {}
    for case in SOUND:
        plan = everything.hr.explain(case.view)
        if not plan.incremental:
            reasons[case.view] = plan.reasons
    assert len(load_cases()) - len(reasons) >= LEAST_INCREMENTAL, reasons


@pytest.mark.slow
def test_each_own_sequence(spark: SparkSession, tmp_path: Path) -> None:
    _check_own(spark, tmp_path, OWN)


@pytest.mark.slow
def test_windows_read_by_pieces(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_pieces, "FEW", 0)
    _check_own(spark, tmp_path, WINDOWS)


def _check_own(spark: SparkSession, folder: Path, names: str) -> None:
    """Each case's own sequence of changes, in a home of these cases."""
    cases = select_cases(names)
    trial = Trial(spark, folder / "home", map(view_of, cases))
    for case in cases:
        run_own(trial, case)
    trial.close()
    check(trial)


def test_changes_on_which_spark_fails_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    (case,) = select_cases("C25")
    trial = Trial(spark, tmp_path / "home", [view_of(case)])
    run_own(trial, case)
    trial.close()
    check(trial)
    assert trial.rejections == 2
