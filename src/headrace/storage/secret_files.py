"""Secrets that a statement was written with: each a file of the home, for its owner's eyes alone.

The ledger, backups, SHOW and logs have the reference to the file, as for a secret that its user keeps elsewhere. A copy
of the home made by `backup` has no secrets in it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.secrets import is_reference, is_secret
from headrace.storage.objects import Location

FOLDER = "secrets"


def kept_apart(
    home: Location,
    location: str,
    options: Mapping[str, Any],
    secret: Callable[[str], bool] = is_secret,
    has_password: bool = True,
) -> tuple[str, dict[str, Any]]:
    """A location and options with references in place of secrets, which are kept in files of the home from now on.

    The password of a URL becomes the option `password`, if there is one.

    In an object store, whose files others may read, nothing is kept: there a plain secret stays, and is refused.
    """
    if not isinstance(home, Path):
        return location, dict(options)
    found = dict(options)
    bare, password = _without_password(location)
    if has_password and password and "password" not in found:
        location, found["password"] = bare, password
    plain = [name for name, value in found.items() if secret(name) and isinstance(value, str) and value]
    for name in plain:
        if not is_reference(found[name]):
            found[name] = _kept(home, found[name])
    return location, found


def forget_others(home: Location, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Remove the secrets that no definition refers to, as of a feed that was dropped or was never made."""
    if not isinstance(home, Path) or not (home / FOLDER).is_dir():
        return
    # By their names, which are random: the home may have been moved, or be reached by another path now.
    named = {str(value).rpartition("/")[2] for options in definitions for value in options.values()}
    for path in (home / FOLDER).iterdir():
        if path.name not in named:
            with suppress(OSError):
                path.unlink()


def _kept(home: Path, secret: str) -> str:
    folder = home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / secrets.token_hex(16)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    return _reference(path)


def _reference(path: Path) -> str:
    return f"file:{path.absolute()}"


def _without_password(location: str) -> tuple[str, str | None]:
    try:
        parts = urlsplit(location)
        password = parts.password
    except ValueError:
        return location, None
    if not password:
        return location, None
    user, _, host = parts.netloc.rpartition("@")
    bare = parts._replace(netloc=f"{user.partition(':')[0]}@{host}" if user.partition(":")[0] else host)
    return urlunsplit(bare), unquote(password)
