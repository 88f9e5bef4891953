"""Whom a database server runs as where root starts it: none of them runs as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.errors import SetupError
from headrace.spark.jvm import Account

_INSTEAD_OF_ROOT = "nobody"
_PREPARE_SECONDS = 120.0


def account_for_data() -> Account | None:
    """The user that a server runs as; none where that is who runs this process."""
    if os.geteuid() != 0:
        return None
    found = pwd.getpwnam(_INSTEAD_OF_ROOT)
    return Account(found.pw_uid, found.pw_gid)


def give(path: Path, account: Account | None) -> None:
    """Make a file or folder that user's."""
    if account is not None:
        os.chown(path, account.user, account.group)


def open_way(server: str, folder: Path, account: Account | None) -> None:
    """Make the folder of a server, through which that user can pass; an error if the folders above do not let it."""
    folder.mkdir(parents=True, exist_ok=True)
    if account is None:
        return
    folder.chmod(0o711)
    if not may_run([str(shutil.which("test") or "/usr/bin/test"), "-x", str(folder)], account):
        raise SetupError(
            f"{server} cannot reach {folder}",
            detail=f"Started by root, it runs as the user {_INSTEAD_OF_ROOT}, who may not pass through every folder "
            "above its data.",
            hint="give a folder that others may pass through (chmod o+x), or start the servers as another user",
        )


def may_run(command: Sequence[str], account: Account) -> bool:
    """Whether a command succeeds for that user."""
    try:
        ran = subprocess.run(
            command, cwd="/", capture_output=True, user=account.user, group=account.group, extra_groups=(), check=False
        )
    except PermissionError:
        return False
    return ran.returncode == 0


def make_data(server: str, command: Sequence[str], environment: Mapping[str, str], account: Account | None) -> None:
    """Run, as that user, what makes the data of a server."""
    try:
        subprocess.run(
            command,
            env=environment,
            cwd="/",
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PREPARE_SECONDS,
            user=None if account is None else account.user,
            group=None if account is None else account.group,
            extra_groups=None if account is None else (),
        )
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).decode("utf-8", "replace").strip()
        raise SetupError(f"the data of {server} could not be made", detail=said[-2000:]) from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"the data of {server} were not made within {_PREPARE_SECONDS:.0f} seconds") from error
