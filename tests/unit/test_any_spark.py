"""What is refused before any work is given to a Spark, and the folder that driver and executors share."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from headrace.cli.homes import ChosenHome, with_master
from headrace.errors import SetupError
from headrace.settings import Settings
from headrace.spark.requirements import check_session
from headrace.spark.shared_scratch import folder_for
from headrace.storage.objects import location_of
from headrace.storage.scratch import Scratch


def session(version: str = pyspark.__version__, stopped: bool = False) -> Any:
    """As much of a session as is looked at."""
    java_context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))
    return SimpleNamespace(version=version, _jsparkSession=object(), sparkContext=SimpleNamespace(_jsc=java_context))


def test_a_session_that_can_work_is_taken() -> None:
    check_session(session())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (SimpleNamespace(version=pyspark.__version__), "Spark Connect"),
        (session(stopped=True), "is stopped"),
        (session("4.1.3"), r"Spark 4\.1\.3 cannot be used"),
        (session("4.20.0"), r"Spark 4\.20\.0 cannot be used"),
    ],
)
def test_a_session_that_cannot_work_is_refused(given: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told) as refused:
        check_session(given)
    assert refused.value.hint


def test_the_shared_folder_is_that_of_the_home_unless_another_is_named(tmp_path: Path) -> None:
    assert folder_for(tmp_path / "home", None) == tmp_path / "home" / "scratch"
    assert folder_for(tmp_path / "home", str(tmp_path / "other")) == tmp_path / "other"
    assert folder_for(tmp_path / "home", (tmp_path / "other").as_uri()) == tmp_path / "other"


def test_a_home_in_an_object_store_needs_a_shared_folder(tmp_path: Path) -> None:
    home = location_of("s3://bucket/home", {"region": "nowhere"})
    with pytest.raises(SetupError, match="needs a folder that its executors share") as refused:
        folder_for(home, None)
    assert "shared_scratch" in str(refused.value)
    assert folder_for(home, str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["a*b", "a[b", "a{b}", "a?"])
def test_a_folder_that_spark_would_read_as_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match="cannot be told to Spark"):
        folder_for(tmp_path / name, None)


def test_a_shared_folder_goes_with_the_last_who_uses_it(tmp_path: Path) -> None:
    shared = tmp_path / "scratch"
    one, other = Scratch(shared, shared=True), Scratch(shared, shared=True, sweeping=False)
    one.close()
    assert list(shared.iterdir()) == [other.path]
    other.close()
    assert not shared.exists()


def test_only_what_nobody_holds_is_swept(tmp_path: Path) -> None:
    held = Scratch(tmp_path, shared=True)
    left = tmp_path / "headrace-left"
    left.mkdir()
    with open(left / "in-use", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Scratch(tmp_path, shared=True).close()
        assert left.exists()
    Scratch(tmp_path, shared=True).close()
    assert not left.exists()
    assert held.path.exists()
    held.close()


def test_the_master_that_is_given_goes_before_that_of_the_project() -> None:
    chosen = ChosenHome("home", Settings(spark_master="yarn", small_bound=7), named=True)
    assert with_master(chosen, None) is chosen
    other = with_master(chosen, "spark://head:7077").settings
    assert other is not None
    assert (other.spark_master, other.small_bound) == ("spark://head:7077", 7)


def test_a_master_that_spark_does_not_know_is_refused() -> None:
    with pytest.raises(SetupError, match="spark_master"):
        with_master(ChosenHome("home", None, named=False), "head:7077")
