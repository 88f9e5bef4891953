"""A Spark that ends while it starts, tried with programs that launch as Spark does but are no JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from headrace.errors import HeadraceError, SetupError, SparkLost
from headrace.settings import Settings
from headrace.spark.session import start_spark
from tests.waiting import until

# Notes its number, then does what the test wants: ends, or tells a port on which it may or may not be heard.
SUBMIT = """#!{python}
import os, socket, struct, sys, time
with open({numbers!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
way = {way!r}
if way == "refuses":
    sys.exit(7)
if way == "killed":
    os.kill(os.getpid(), 9)
if way != "silent":
    server = socket.create_server(("127.0.0.1", 0))
    secret = b"secret"
    path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
    with open(path + ".new", "wb") as file:
        file.write(struct.pack("!i", server.getsockname()[1]) + struct.pack("!i", len(secret)) + secret)
    os.rename(path + ".new", path)
    server.accept()[0].recv(1)
    os.kill(os.getpid(), 9)
time.sleep(300)
"""


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr("headrace.spark.session.find_java", lambda: None)
    monkeypatch.setattr("headrace.spark.session.launcher_home", lambda *_: tmp_path)
    yield tmp_path
    for number in numbers(tmp_path):
        if Path(f"/proc/{number}").exists() and not is_gone(number):
            os.kill(number, signal.SIGKILL)


def submit(home: Path, way: str) -> None:
    path = home / "bin" / "spark-submit"
    path.write_text(SUBMIT.format(python=sys.executable, numbers=str(home / "numbers"), way=way))
    path.chmod(0o755)


def numbers(home: Path) -> list[int]:
    noted = home / "numbers"
    return [int(line) for line in noted.read_text().split()] if noted.exists() else []


def is_gone(number: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("way", "error"), [("refuses", SetupError), ("killed", SparkLost), ("killed when first asked", SparkLost)]
)
def test_one_that_ends_while_it_starts_is_launched_anew(spark_home: Path, way: str, error: type[HeadraceError]) -> None:
    submit(spark_home, way)
    for attempt in (1, 2, 3):
        with pytest.raises(error):
            start_spark(Settings())
        assert len(numbers(spark_home)) == attempt
        assert SparkContext._gateway is None
        assert SparkContext._active_spark_context is None
    assert all(is_gone(number) for number in numbers(spark_home))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_it_starts_leaves_no_process(spark_home: Path) -> None:
    submit(spark_home, "silent")

    def interrupt() -> None:
        until(lambda: bool(numbers(spark_home)))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        start_spark(Settings())
    (number,) = numbers(spark_home)
    assert is_gone(number)


@pytest.mark.slow
@pytest.mark.thorough
def test_one_that_starts_does_not_outlive_its_killed_process(spark_home: Path) -> None:
    """Not even if it is stopped, and so cannot notice that nobody is there any more."""
    submit(spark_home, "silent")
    script = """
from pathlib import Path
import headrace.spark.session as session
session.find_java = lambda: None
session.launcher_home = lambda *_: Path("/")
session.start_spark(session.Settings())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(spark_home)}
    python = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        until(lambda: bool(numbers(spark_home)))
        (number,) = numbers(spark_home)
        os.kill(number, signal.SIGSTOP)
    finally:
        python.kill()
        python.wait()
    until(lambda: is_gone(number))
