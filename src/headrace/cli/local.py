"""`headrace local`: real servers on this machine, for demos and tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption
from headrace.cli.show import show_json
from headrace.cli.sql_text import pair
from headrace.errors import SetupError
from headrace.local.connectors import Connectors
from headrace.local.debezium import mariadb_config, postgres_config
from headrace.local.folder import folder_option, make_folder, usual_folder
from headrace.local.packages import kafka_jars
from headrace.local.running import Running, end_running, remove_data, running_in

_LOOK_SECONDS = 0.2
_SERVERS = ("kafka", "connect", "postgres", "mariadb")

local = typer.Typer(
    name="local",
    help="Real servers on this machine, for demos and tests: a Kafka broker, Kafka Connect with Debezium, and a "
    "PostgreSQL whose changes can be captured.\n\n"
    "    headrace local up\n\n"
    "    headrace local status\n\n"
    "    headrace local capture shop public.orders\n\n"
    "    headrace local logs connect\n\n"
    "    headrace local down\n\n"
    "In Python: with headrace.local.start() as servers: ...",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="FOLDER",
        help="Where data and logs lie; by default ~/.local/share/headrace/local, for root /var/lib/headrace/local.",
    ),
]


@local.command()
def up(
    folder: FolderOption = None,
    kafka: Annotated[bool, typer.Option(help="Start a Kafka broker.")] = True,
    connect: Annotated[bool, typer.Option(help="Start Kafka Connect with Debezium.")] = True,
    postgres: Annotated[bool, typer.Option(help="Start a PostgreSQL with wal_level=logical.")] = True,
    mariadb: Annotated[bool, typer.Option(help="Start the machine's MariaDB, with a binlog of rows.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when the servers are ready, and let them run.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start the servers, and end them at Ctrl-C.

    The first time downloads 60 MB. Data, ports and the password are kept in the folder: what is started there again has
    them still. All listen on this machine only; Kafka and Connect ask nobody for a password.

    Examples:

        headrace local up

        headrace local up --detach --json

        headrace local up --no-connect --no-postgres --folder /tmp/only-kafka

    Then, from another shell, with the addresses that are shown:

        psql postgresql://postgres:...@127.0.0.1:25432/postgres

        curl http://127.0.0.1:28083/connectors

    headrace local down ends them from anywhere. A process that is killed takes its servers with it.
    """
    chosen = folder or usual_folder()
    wanted = {"kafka": kafka, "connect": connect, "postgres": postgres, "mariadb": mariadb}
    with errors_reported(as_json=as_json, debug=debug):
        if detach:
            if kafka:
                # Here, where it can be seen how far it is.
                kafka_jars()
            _show(_detached(chosen, wanted), as_json=as_json)
            return
        # A terminal that is closed and a system that shuts down mean the same as Ctrl-C.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            _run(chosen, wanted, as_json=as_json)


@local.command()
def down(
    folder: FolderOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove their data and logs too.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """End the servers of a folder in good order; their data stay for the next time.

    Examples:

        headrace local down

        headrace local down --remove
    """
    chosen = folder or usual_folder()
    with errors_reported(as_json=as_json, debug=debug):
        ended = end_running(chosen)
        if remove:
            remove_data(chosen)
    if as_json:
        show_json({"folder": str(chosen), "ended": ended, "removed": remove})
        return
    typer.echo(f"the servers in {chosen} have ended" if ended else f"no servers run in {chosen}")
    if remove:
        typer.echo("their data are removed")


@local.command()
def status(folder: FolderOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show where the servers are and whether each answers; exit code 1 unless all do.

    Examples:

        headrace local status

        headrace local status --json
    """
    chosen = folder or usual_folder()
    with errors_reported(as_json=as_json, debug=debug):
        running = running_in(chosen)
        if running is None:
            if as_json:
                show_json({"folder": str(chosen), "servers": []})
            else:
                typer.echo(f"no servers run in {chosen}; start them with: headrace local up")
            raise typer.Exit(1)
        answers = {server.name: server.answers() for server in running.servers}
        if as_json:
            show_json(_parts(running, answers))
        else:
            for server in running.servers:
                state = "answers" if answers[server.name] else "does not answer"
                typer.echo(_line(server.name, state, server.address))
            typer.echo(f"started by process {running.pid} at {running.started_at}; logs in {chosen / 'logs'}")
        if not all(answers.values()):
            raise typer.Exit(1)


@local.command()
def capture(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The connector; its topics begin with this name.")],
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="With their schema; all if none is named.")
    ] = None,
    mariadb: Annotated[bool, typer.Option("--mariadb", help="Capture the MariaDB instead of the PostgreSQL.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="A setting of Debezium; may be repeated."),
    ] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have Debezium capture tables of the database that runs, into topics; return when it does.

    Examples:

        headrace local capture shop public.orders public.customers

        headrace local capture shop public.orders -o decimal.handling.mode=string

    Then, with the address that headrace local status shows:

        headrace source create shop '127.0.0.1:29092/shop.public.*' --from kafka -o format=debezium
    """
    chosen = folder or usual_folder()
    with errors_reported(as_json=as_json, debug=debug):
        running, given = running_in(chosen), dict(map(pair, options or ()))
        bootstrap, connect = (_address(running, one, chosen) for one in ("kafka", "connect"))
        database = _address(running, "mariadb" if mariadb else "postgres", chosen)
        if mariadb:
            config = mariadb_config(database, bootstrap, name, tables or (), given)
        else:
            config = postgres_config(database, name, tables or (), given)
        Connectors(connect).create(config)
    if as_json:
        show_json({"connector": name, "bootstrap": bootstrap, "topics": f"{name}.*"})
    else:
        typer.echo(f"connector {name} runs; its topics are {bootstrap}/{name}.*")


def _address(running: Running | None, server: str, folder: Path) -> str:
    address = None if running is None else running.address(server)
    if address is None:
        raise SetupError(
            f"{server} does not run in {folder}",
            hint=f"headrace local status{folder_option(folder)} shows what does, headrace local up starts all",
        )
    return address


@local.command()
def logs(
    server: Annotated[
        str | None, typer.Argument(metavar="[SERVER]", help="kafka, connect, postgres or mariadb; by default all.")
    ] = None,
    folder: FolderOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last lines of each to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what the servers say, also after their end.

    Examples:

        headrace local logs

        headrace local logs connect --follow

        headrace local logs kafka --lines 1000 --json
    """
    chosen = (folder or usual_folder()) / "logs"
    with errors_reported(as_json=as_json, debug=debug):
        if server is not None and server not in _SERVERS:
            raise SetupError(f"there is no server {server}", hint=f"the servers are {', '.join(_SERVERS)}")
        names = [name for name in ([server] if server else _SERVERS) if (chosen / f"{name}.log").exists()]
        if not names:
            raise SetupError(f"there are no logs in {chosen}", hint="start the servers with: headrace local up")
        with suppress(KeyboardInterrupt):
            for name, line in _said(chosen, names, lines, follow=follow):
                if as_json:
                    show_json({"server": name, "line": line})
                else:
                    typer.echo(line if server else f"{name:<8} | {line}")


def _run(folder: Path, wanted: dict[str, bool], *, as_json: bool) -> None:
    """Run servers until told to end, or until one of them has ended by itself."""

    def ready(server: headrace.local.Server) -> None:
        if not as_json:
            typer.echo(_line(server.name, f"ready after {server.seconds:.1f} s", server.address))

    with headrace.local.start(**wanted, folder=folder, on_ready=ready) as servers:
        running = running_in(folder)
        assert running is not None
        if as_json:
            _show(running, as_json=True)
        else:
            typer.echo(f"logs in {servers.logs}; Ctrl-C ends all, or headrace local down from another shell")
        while not (ended := servers.ended()):
            time.sleep(_LOOK_SECONDS)
        raise SetupError(
            f"{ended[0].name} has ended by itself",
            detail="The other servers were ended too; the data of all are kept.",
            hint=f"see why in {ended[0].log}, then start them again: headrace local up",
        )


def _detached(folder: Path, wanted: dict[str, bool]) -> Running:
    """Let a process of its own run servers, and return when they are ready."""
    make_folder(folder)
    said = folder / "logs" / "up.log"
    said.parent.mkdir(exist_ok=True)
    options = [f"--{name}" if value else f"--no-{name}" for name, value in wanted.items()]
    program = "from headrace.cli.main import run; run()"
    with open(said, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "local", "up", "--json", "--folder", str(folder.absolute()), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            running = running_in(folder)
            if running is not None and running.pid == process.pid:
                return running
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    raise _told_error(said)


def _told_error(said: Path) -> SetupError:
    """The error with which a process has ended, from what it printed."""
    text = said.read_text(encoding="utf-8", errors="replace")
    with suppress(ValueError, IndexError, KeyError):
        parts = json.loads(text.splitlines()[-1])
        return SetupError(parts["message"], detail=parts["detail"], hint=parts["hint"])
    return SetupError("the servers could not be started", detail=text[-2000:], hint=f"see {said}")


def _show(running: Running, *, as_json: bool) -> None:
    if as_json:
        show_json(_parts(running, {server.name: True for server in running.servers}))
        return
    for server in running.servers:
        typer.echo(_line(server.name, f"ready after {server.start_seconds:.1f} s", server.address))
    typer.echo(f"logs in {running.folder / 'logs'}; headrace local down{folder_option(running.folder)} ends all")


def _line(name: str, state: str, address: str) -> str:
    return f"{name:<9} {state:<18} {address}"


def _parts(running: Running, answers: dict[str, bool]) -> dict[str, object]:
    """What runs, as a plain mapping; the addresses have the names that they have in Python."""
    return {
        "bootstrap": running.address("kafka"),
        "connect_url": running.address("connect"),
        "postgres_dsn": running.address("postgres"),
        "mariadb_dsn": running.address("mariadb"),
        "folder": str(running.folder),
        "logs": str(running.folder / "logs"),
        "pid": running.pid,
        "started_at": running.started_at,
        "servers": [
            {
                "name": server.name,
                "answers": answers[server.name],
                "address": server.address,
                "start_seconds": server.start_seconds,
                "log": server.log,
            }
            for server in running.servers
        ],
    }


def _said(folder: Path, names: list[str], count: int, *, follow: bool) -> Iterator[tuple[str, str]]:
    """The last lines of each log, each with its server's name, and those that come."""
    files = {name: open(folder / f"{name}.log", encoding="utf-8", errors="replace") for name in names}  # noqa: SIM115
    try:
        for name, file in files.items():
            yield from ((name, line.rstrip("\n")) for line in deque(file, count))
        while follow:
            for name, file in files.items():
                yield from ((name, line.rstrip("\n")) for line in file)
            time.sleep(_LOOK_SECONDS)
    finally:
        for file in files.values():
            file.close()
