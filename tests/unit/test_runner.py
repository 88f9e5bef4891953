"""The runner of the suite: results, tests that fail once, leftovers, and the parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.__main__ import run_again, run_lanes
from tests.runner.leftovers import checkout_files
from tests.runner.report import print_summary
from tests.runner.results import Phase, PhaseReader, Results
from tests.runner.tiers import PARTS, TEST, TESTS

SUITE = """
import pathlib, pytest
HERE = pathlib.Path(__file__).parent

def test_passes(): pass

def test_fails_the_first_time():
    first = not (HERE / "ran").exists()
    (HERE / "ran").touch()
    assert not first, "not yet"

def test_fails_always():
    print("said before")
    assert False

@pytest.mark.skip(reason="needs prometheus (apt-get install prometheus)")
def test_skipped(): pass

@pytest.fixture
def broken():
    yield
    raise OSError("in its tear-down")

def test_tear_down(broken): pass
"""


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the pytest processes of these tests without the plugins that are installed: those take seconds to load."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.thorough
def test_failures_are_run_again_and_skips_name_their_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    folder = tmp_path / "run"
    folder.mkdir()

    results, problems = run_lanes([("lane", [suite.name])], folder, root=tmp_path)
    assert problems == []
    failed = [result.test.rpartition("::")[2] for result in results.of("failed")]
    assert failed == ["test_fails_the_first_time", "test_fails_always", "test_tear_down"]
    always = results.of("failed")[1]
    assert (always.first_error, "said before" in always.text) == ("assert False", True)

    again, _ = run_again([result.test for result in results.of("failed")], folder, tmp_path)
    passed = [result for result in again.of("passed") if result.ended]
    assert [result.test.rpartition("::")[2] for result in passed] == ["test_fails_the_first_time"]

    print_summary("a tier", results, passed, [], 1.0, 2.0)
    lines = capsys.readouterr().out.splitlines()
    assert "1 passed, 3 failed, 1 skipped" in lines
    assert lines[-1] == "1 skipped for want of prometheus: apt-get install prometheus"


@pytest.mark.thorough
def test_a_process_that_fails_by_itself_makes_the_run_red(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text("import os\ndef test_ends_all(): os._exit(7)")
    _, problems = run_lanes([("lane", [suite.name])], tmp_path, root=tmp_path)
    assert [problem.splitlines()[0] for problem in problems] == ["pytest of lane ended with code 7:"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("suite", "failed", "problem"),
    [
        ("import os\ndef test_a(): os._exit(0)\ndef test_b(): assert False", ["test_a", "test_b"], ""),
        (
            "import os\ndef test_a(): pass\ndef test_b(): os._exit(1)\ndef test_c(): pass",
            ["test_b", "test_c"],
            "code 1",
        ),
        (
            "import pytest\ndef test_a(): pytest.exit('enough', returncode=0)\ndef test_b(): pass",
            ["test_a", "test_b"],
            "",
        ),
        ("import atexit, os\ndef test_a(): atexit.register(os._exit, 1)", [], "code 1"),
        ("", [], "code 5"),
        ("def test_a(:", ["test_suite.py"], "code 2"),
    ],
    ids=["ends with 0", "ends with 1", "pytest.exit", "ends with 1 after the tests", "no tests", "syntax error"],
)
def test_a_test_that_did_not_end_and_a_process_that_fails_make_the_run_red(
    tmp_path: Path, suite: str, failed: list[str], problem: str
) -> None:
    (tmp_path / "test_suite.py").write_text(suite)
    results, problems = run_lanes([("lane", ["test_suite.py"])], tmp_path, root=tmp_path)
    assert [result.test.rpartition("::")[2] for result in results.of("failed")] == failed
    assert [problem in found for found in problems] == ([True] if problem else [])


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "results"
    reader = PhaseReader(file)
    assert list(reader.new_phases()) == []
    line = Phase("t", "call", "passed", 0.5).to_json() + "\n"
    file.write_text(line + line[:5])
    assert len(list(reader.new_phases())) == 1
    file.write_text(line + line)
    results = Results()
    results.add(reader.new_phases())
    assert results.by_test["t"].seconds == 0.5


def test_new_and_changed_files_are_left_over(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    (tmp_path / "kept").write_text("1")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    before = checkout_files(tmp_path)
    assert before == {"kept"}
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").touch()
    (tmp_path / "first:a\nsecond").mkdir()
    (tmp_path / "kept").write_text("2")
    assert checkout_files(tmp_path) - before == {"first:a\nsecond", "changed: kept"}


ORPHAN = """
import subprocess, sys
from tests.runner.leftovers import adopt_orphans, descendants, kill, reap, wait_for_descendants
adopt_orphans()
subprocess.run(["setsid", "env", "-i", "sh", "-c", "sleep 600 & echo"], stdout=subprocess.DEVNULL, check=True)
remaining = wait_for_descendants(0)
assert list(remaining.values()) == ["sleep 600"], remaining
assert wait_for_descendants(0, remaining) == {}
kill(remaining)
assert wait_for_descendants(60) == {}
reap()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux alone lists the processes that are left")
def test_a_process_that_left_its_session_and_environment_is_left_over() -> None:
    subprocess.run([sys.executable, "-c", ORPHAN], check=True)


def test_each_file_is_in_one_part_and_the_default_tier_has_all_but_the_cluster() -> None:
    files = sorted(str(path.relative_to(TESTS.parent)) for path in TESTS.glob("*/test_*.py"))
    in_parts = sorted(path for part in PARTS.values() for lane in part.lanes for path in lane.paths)
    assert in_parts == files
    in_default = sorted(path for lane in TEST.lanes for path in lane.paths)
    assert in_default == [path for path in files if not path.startswith("tests/cluster/")]
