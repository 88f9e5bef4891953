"""An archive of Spark's classes made by a real Java is used, and one that is broken keeps no Spark from starting."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.settings import Settings
from headrace.spark import jars
from headrace.spark.class_archive import archive_of

# A Spark of its own process; it says whether its JVM has mapped the archive, after a query.
_START = """
from pathlib import Path
from headrace.settings import read_settings
from headrace.spark.class_archive import archive_of
from headrace.spark.session import process_of, start_spark
spark = start_spark(read_settings())
assert spark.sql("SELECT sum(id) FROM range(5)").collect()[0][0] == 10
archive = archive_of(read_settings())
print("mapped" if str(archive) in Path(f"/proc/{process_of(spark).pid}/maps").read_text() else "not mapped")
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """With the jars of this machine in a folder of their own, whose name Java must be told in quotes."""
    folder = tmp_path_factory.mktemp("the cache") / "jars"
    folder.mkdir()
    for path in jars.paths():
        (folder / path.name).symlink_to(path)
    return Settings(jars=folder)


def run(settings: Settings, *program: str) -> str:
    environment = {**os.environ, "HEADRACE_JARS": str(settings.jars)}
    done = subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        env=environment,
        # Where a JVM leaves its report when it crashes.
        cwd=settings.jars.parent,
        timeout=900,
        check=True,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_spark_maps_an_archive_and_starts_with_a_broken_one(settings: Settings) -> None:
    archive = archive_of(settings)
    assert run(settings, "-m", "headrace.spark.make_class_archive") == f"{archive}\n"
    assert run(settings, "-c", _START) == "mapped\n"
    archive.chmod(0o644)
    # With a part of one a JVM begins, and crashes; one that is no archive at all it passes over.
    os.truncate(archive, archive.stat().st_size // 2)
    assert "not mapped\n" in run(settings, "-c", _START)
    assert not archive.exists()
