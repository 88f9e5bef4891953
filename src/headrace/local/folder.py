"""The folder of a set of servers: their data, their logs, what they remember, and who runs them now."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headrace.errors import SetupError
from headrace.local.ports import free_port, is_free

_RUNNING, _KEPT, _LOCK = "running.json", "kept.json", "lock"
_LOOKED_SECONDS = 0.3


def usual_folder() -> Path:
    """Where the servers of `headrace local` lie if nothing else is said: one set for each user."""
    # Root's own folder is closed to the user that PostgreSQL runs as.
    return Path("/var/lib/headrace/local") if os.geteuid() == 0 else Path.home() / ".local/share/headrace/local"


def make_folder(path: Path) -> None:
    """Make a folder for servers, if it is not there, that is closed to others."""
    if not path.exists():
        path.mkdir(parents=True)
        close_to_others(path)


def folder_option(path: Path) -> str:
    """What a command of `headrace local` needs after it to mean a folder; nothing if it is the usual one."""
    return "" if path.absolute() == usual_folder() else f" --folder {path}"


def close_to_others(path: Path) -> None:
    """Let nobody else look into a folder; what root starts may pass through it as another user."""
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)


@dataclass(frozen=True)
class Kept:
    """What stays the same whenever the servers of a folder are started: a connector knows its database by it."""

    ports: Mapping[str, int]
    password: str


class Claim:
    """A folder that this process alone runs servers in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        make_folder(path)
        self._lock: IO[str] = open(path / _LOCK, "w")  # noqa: SIM115 - held until released
        if not _locked(self._lock):
            self._lock.close()
            running, where = read_running(path) or {}, folder_option(path)
            raise SetupError(
                f"the servers in {path} are running already",
                detail=f"Process {running['pid']} has started them." if running else "They are just being started.",
                hint=f"`headrace local status{where}` shows them, `headrace local down{where}` ends them; "
                "or take another folder",
            )
        # A process that was killed has left it; its number may be another process's by now.
        (path / _RUNNING).unlink(missing_ok=True)
        self.logs.mkdir(exist_ok=True)

    def keep(self, names: tuple[str, ...]) -> Kept:
        """The password and a port for each name, as they were before wherever that is still possible."""
        file = self.path / _KEPT
        before: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        ports: dict[str, int] = dict(before.get("ports", {}))
        for name in names:
            if name not in ports or not is_free(ports[name]):
                ports[name] = free_port(ports.values())
        kept = Kept(ports, before.get("password") or secrets.token_hex(16))
        _write(file, {"ports": ports, "password": kept.password})
        return kept

    def tell(self, running: Mapping[str, object]) -> None:
        """Write down what runs, for those who ask."""
        _write(self.path / _RUNNING, running)

    def release(self) -> None:
        """Let others run servers here."""
        (self.path / _RUNNING).unlink(missing_ok=True)
        self._lock.close()


def read_running(path: Path) -> dict[str, Any] | None:
    """What was told to run in a folder; none if whoever told it has gone."""
    if not is_claimed(path):
        return None
    try:
        return json.loads((path / _RUNNING).read_text())
    except FileNotFoundError:
        return None


def is_claimed(path: Path) -> bool:
    """Whether a process runs servers in a folder, or starts or ends them."""
    try:
        with open(path / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _locked(lock: IO[str]) -> bool:
    # Who only looks whether there is a claim holds the lock for an instant.
    until = time.monotonic() + _LOOKED_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True


def _write(file: Path, content: object) -> None:
    # Only for the owner: it has a password.
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content))
    os.replace(draft, file)
