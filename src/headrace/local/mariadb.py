"""The machine's own MariaDB as a server whose changes can be captured (a binlog of rows), with a password."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import SetupError
from headrace.local.account import account_for_data, give, make_data, open_way
from headrace.local.ports import HOST
from headrace.local.server import Program
from headrace.spark.jvm import Account

USER = DATABASE = "headrace"
_NAME = "MariaDB"
_ENVIRONMENT = {"PATH": f"{os.defpath}:/usr/sbin:/sbin", "LC_ALL": "C", "TZ": "UTC"}
_ANSWER_SECONDS = 2.0
# The first byte of what a server says to whoever connects: the version of the protocol.
_GREETING = 10


def mariadb_program(folder: Path, port: int, password: str, given: Mapping[str, str], *, lasting: bool) -> Program:
    """The server, whose data lie in the folder; what is given are system variables."""
    account = account_for_data()
    server, install = _program("mariadbd"), _program("mariadb-install-db")
    open_way(_NAME, folder, account)
    data, first = folder / "data", folder / "first.sql"
    variables = {
        "datadir": str(data),
        "tmpdir": str(data),
        "port": str(port),
        "bind-address": HOST,
        # A socket that is no file: a path can be too long for one.
        "socket": f"@headrace-mariadb-{port}",
        "init-file": str(first),
        "server-id": "1",
        "log-bin": "binlog",
        "binlog-format": "ROW",
        "binlog-row-image": "FULL",
        "skip-name-resolve": "ON",
        "character-set-server": "utf8mb4",
        "default-time-zone": "+00:00",
        "innodb-buffer-pool-size": "64M",
        # Data that go with this process need not survive the machine.
        "innodb-flush-log-at-trx-commit": "1" if lasting else "2",
        **given,
    }

    def prepare() -> None:
        if not (data / "mysql").exists():
            _make(data, install, account)
        first.unlink(missing_ok=True)
        first.touch(mode=0o600)
        # One statement a line, as it is read. As a MariaDB is made, it lets root in from anywhere, without a password.
        first.write_text(
            "SET sql_log_bin = 0;\n"
            "DELETE FROM mysql.global_priv WHERE User IN ('root', '');\n"
            "FLUSH PRIVILEGES;\n"
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE OR REPLACE USER {USER}@'{HOST}' IDENTIFIED BY '{password}';\n"
            f"GRANT ALL ON *.* TO {USER}@'{HOST}' WITH GRANT OPTION;\n"
        )
        give(first, account)

    return Program(
        name="mariadb",
        address=f"mysql://{USER}:{password}@{HOST}:{port}/{DATABASE}",
        port=port,
        command=[server, "--no-defaults", *(f"--{name}={value}" for name, value in variables.items())],
        environment=_ENVIRONMENT,
        account=account,
        prepare=prepare,
        answers=lambda: mariadb_answers(port),
        held=("Can't lock", "already in use", "Unable to lock"),
    )


def mariadb_answers(port: int) -> bool:
    """Whether a MariaDB greets, which it does once what it runs first is done."""
    try:
        with socket.create_connection((HOST, port), _ANSWER_SECONDS) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            said = connection.recv(5)
    except OSError:
        return False
    return len(said) == 5 and said[4] == _GREETING


def _make(data: Path, install: str, account: Account | None) -> None:
    draft = data.with_name("draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    give(draft, account)
    options = ["--no-defaults", f"--datadir={draft}", "--auth-root-authentication-method=normal", "--skip-test-db"]
    make_data(_NAME, [install, *options], _ENVIRONMENT, account)
    draft.rename(data)


def _program(name: str) -> str:
    found = shutil.which(name, path=_ENVIRONMENT["PATH"]) or shutil.which(name)
    if found is None:
        raise SetupError(
            "this machine has no MariaDB",
            detail=f"There is no {name} on the PATH. Unlike the other servers, it comes from no package of Python's.",
            hint="install the server without starting it: apt-get install mariadb-server-core mariadb-client-core",
        )
    return found
