"""A PostgreSQL whose changes can be captured (wal_level=logical), for this machine only and with a password."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import SetupError
from headrace.local.account import account_for_data, give, make_data, may_run, open_way
from headrace.local.packages import PostgresFiles, client
from headrace.local.ports import HOST, listens
from headrace.local.server import Program
from headrace.spark.jvm import Account

USER = DATABASE = "postgres"
_NAME = "PostgreSQL"
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def postgres_program(
    folder: Path, files: PostgresFiles, port: int, password: str, given: Mapping[str, str], *, lasting: bool
) -> Program:
    """The server, whose data lie in the folder; what is given are parameters as in postgresql.conf."""
    account = account_for_data()
    open_way(_NAME, folder, account)
    if account is not None:
        files = _reachable(files, folder, account)
    data = folder / "data"
    dsn = f"postgresql://{USER}:{password}@{HOST}:{port}/{DATABASE}"
    parameters = {
        "port": str(port),
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "wal_level": "logical",
        "max_connections": "50",
        "shared_buffers": "64MB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Data that go with this process need not survive the machine.
        "fsync": "on" if lasting else "off",
        **given,
    }

    def prepare() -> None:
        if not (data / "PG_VERSION").exists():
            _make(data, files, password, account)

    return Program(
        name="postgres",
        address=dsn,
        port=port,
        command=[
            str(files.program("postgres")),
            *("-D", str(data)),
            *(part for name, value in parameters.items() for part in ("-c", f"{name}={value}")),
        ],
        environment=_ENVIRONMENT,
        account=account,
        prepare=prepare,
        answers=lambda: listens(port) and postgres_answers(dsn),
        # Fast, and in good order: clients are cut off.
        stop_signal=signal.SIGINT,
        # Its children end a moment after it; asked so, it waits for them and leaves no shared memory behind.
        farewell="QUIT",
        held=("still in use", "already exists", "could not bind"),
    )


def postgres_answers(dsn: str) -> bool:
    """Whether a PostgreSQL takes a query."""
    psycopg = client("psycopg")
    try:
        with psycopg.connect(dsn, connect_timeout=3) as connection:
            return connection.execute("SHOW wal_level").fetchone() is not None
    except psycopg.Error as error:
        if "password authentication failed" in str(error):
            raise SetupError(
                "PostgreSQL does not take the password that was kept for it",
                detail="The folder's kept.json is not the one with which its data were made.",
                hint="remove the folder to begin anew: `headrace local down --remove`",
            ) from error
        return False


def _make(data: Path, files: PostgresFiles, password: str, account: Account | None) -> None:
    """Make an empty database cluster: whole, or nothing of it is there."""
    draft = data.with_name("draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    secret = data.with_name("password")
    secret.touch(mode=0o600)
    secret.write_text(password)
    for path in (draft, secret):
        give(path, account)
    try:
        make_data(
            _NAME,
            [
                *(str(files.program("initdb")), "-D", str(draft), "-U", USER, "-A", "scram-sha-256"),
                *(f"--pwfile={secret}", "--encoding=UTF8", "--no-sync", "--no-instructions"),
                # The same order and letters on every machine, whatever its own.
                *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            ],
            _ENVIRONMENT,
            account,
        )
    finally:
        secret.unlink()
    draft.rename(data)


def _reachable(files: PostgresFiles, folder: Path, account: Account) -> PostgresFiles:
    """The same programs where that user can run them: root's own folders are closed to all others."""
    if may_run([str(files.program("postgres")), "--version"], account):
        return files
    beside = folder / "programs"
    copied = PostgresFiles(
        beside / files.installation.parent.name / files.installation.name, beside / files.libraries.name
    )
    if not beside.exists():
        draft = folder / "programs.draft"
        shutil.rmtree(draft, ignore_errors=True)
        unused = shutil.ignore_patterns("include", "*.a")
        for old, new in ((files.installation, copied.installation), (files.libraries, copied.libraries)):
            shutil.copytree(old, draft / new.relative_to(beside), ignore=unused)
        for path in (draft, *draft.rglob("*")):
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        draft.rename(beside)
    return copied
