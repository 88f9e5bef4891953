"""`headrace local` as a user runs it: in processes of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.local.folder import close_to_others
from headrace.local.ports import is_free
from headrace.storage.scratch import Scratch
from tests.e2e.test_local_postgres import port_of, processes_in
from tests.ending_with_us import ending_with_us

_RUN = "from headrace.cli.main import run; run()"
PROGRAM = [sys.executable, "-c", _RUN, "local"]
# One that hears SIGINT also where this process does not, as a job in the background.
_HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
INTERRUPTIBLE = [sys.executable, "-c", f"{_HEARS}; {_RUN}", "local"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for servers, ended when the test ends, or when this process ends, however that is."""
    with closing(Scratch()) as scratch:
        close_to_others(scratch.path)
        place = scratch.path / "servers"
        down = subprocess.Popen(
            # The folder is no argument, by which the process would be taken for a server in it.
            ["/bin/sh", "-c", 'read -r _; exec "$@" --folder "$FOLDER"', "down", *PROGRAM, "down"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**ENVIRONMENT, "FOLDER": str(place)},
            start_new_session=True,
        )
        yield place
        down.communicate(timeout=300)


def said(verb: str, folder: Path, *options: str) -> tuple[int, str, str]:
    """What a verb answers, and how it ended."""
    done = subprocess.run(
        [*PROGRAM, *shlex.split(verb), "--folder", folder, *options],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def answered(verb: str, folder: Path, *options: str) -> Any:
    code, out, err = said(verb, folder, "--json", *options)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
def test_servers_in_the_background(folder: Path) -> None:
    code, out, _ = said("status", folder)
    assert (code, out.startswith("no servers run in ")) == (1, True)
    up = answered("up --detach", folder)
    assert [server["name"] for server in up["servers"]] == ["kafka", "connect", "postgres"]
    with psycopg.connect(up["postgres_dsn"]) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id")

    status = answered("status", folder)
    assert status == up
    code, out, _ = said("status", folder)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[:3]] == [
        [name, "answers"] for name in ("kafka", "connect", "postgres")
    ]

    code, _, err = said("up", folder, "--json")
    assert code == 1
    assert json.loads(err)["message"] == f"the servers in {folder} are running already"

    code, out, _ = said("logs connect --lines 3", folder)
    assert (code, len(out.splitlines())) == (0, 3)
    code, out, _ = said("logs --lines 2 --json", folder)
    assert [json.loads(line)["server"] for line in out.splitlines()] == [
        name for name in ("kafka", "connect", "postgres") for _ in range(2)
    ]

    assert answered("down", folder) == {"folder": str(folder), "ended": True, "removed": False}
    assert processes_in(folder) == {}
    assert is_free(port_of(up["postgres_dsn"]))
    assert answered("down", folder)["ended"] is False

    again = answered("up --detach --no-kafka --no-connect", folder)
    assert (again["bootstrap"], again["postgres_dsn"]) == (None, up["postgres_dsn"])
    with psycopg.connect(again["postgres_dsn"]) as connection:
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
    assert answered("down", folder, "--remove")["removed"] is True
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [signal.SIGINT, *(pytest.param(way, marks=pytest.mark.slow) for way in (signal.SIGTERM, signal.SIGHUP))]
)
def test_servers_in_the_foreground_end_in_good_order(folder: Path, way: signal.Signals) -> None:
    process, dsn = in_foreground(folder)
    process.send_signal(way)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert processes_in(folder) == {}
    assert is_free(port_of(dsn))
    assert "database system is shut down" in (folder / "logs" / "postgres.log").read_text()


def in_foreground(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """`headrace local up` with a PostgreSQL alone, once it is ready, and where that is."""
    process = subprocess.Popen(
        ending_with_us([*INTERRUPTIBLE, "up", "--no-kafka", "--no-connect", "--folder", folder]),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    name, ready, *_, dsn = process.stdout.readline().split()
    assert (name, ready) == ("postgres", "ready")
    assert "logs in" in process.stdout.readline()
    return process, dsn


@pytest.mark.slow
def test_a_server_that_ends_by_itself_is_told(folder: Path) -> None:
    process, _ = in_foreground(folder)
    (postmaster,) = [pid for pid, told in processes_in(folder).items() if told.split("\0")[0].endswith("/postgres")]
    os.kill(postmaster, signal.SIGQUIT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.startswith("error: postgres has ended by itself\ndetail: ")


@pytest.mark.slow
def test_a_start_in_the_background_that_fails_tells_why(folder: Path) -> None:
    """A folder that is PostgreSQL's data in name only."""
    data = folder / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("9.6")
    code, _, err = said("up --detach --no-kafka --no-connect", folder)
    assert code == 1
    assert err.startswith("error: postgres ended while it was started\ndetail: ")
    assert processes_in(folder) == {}


def test_new_lines_are_followed(folder: Path) -> None:
    log = folder / "logs" / "kafka.log"
    log.parent.mkdir(parents=True)
    log.write_text("old\nnew\n")
    process = subprocess.Popen(
        ending_with_us([*INTERRUPTIBLE, "logs", "kafka", "--folder", folder, "--lines", "1", "--follow"]),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "new\n"
    with open(log, "a") as file:
        file.write("newest\n")
    assert process.stdout.readline() == "newest\n"
    with open(log, "a") as file:
        file.write("last\n")
    assert process.stdout.readline() == "last\n", "no line is shown twice"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=300)[0] == ""
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "told"), [("logs", "there are no logs"), ("logs oracle", "there is no server oracle")]
)
def test_logs_that_are_not_there_are_told(folder: Path, verb: str, told: str) -> None:
    code, _, err = said(verb, folder)
    assert code == 1
    assert err.startswith(f"error: {told}")
