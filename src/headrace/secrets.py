"""Secrets by reference: what a statement keeps is where the secret lies, never the secret."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError

FORMS = "env:NAME or file:/path"
# Options whose value is a secret by its name: a plain one is refused, for the ledger would keep it for ever.
_SECRET_WORDS = ("password", "secret", "jaas", "token", "passphrase", "credential", "key.pem", "api_key")
# What says where a secret is asked for is none, whatever its name has in it.
_NO_SECRETS = ("endpoint.url", ".location", "_location", ".path")
_MOST_BYTES = 65_536
# A shorter value stands in texts that have nothing to do with it.
_LEAST_HIDDEN = 4


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret."""
    return any(word in name.lower() for word in _SECRET_WORDS) and not name.lower().endswith(_NO_SECRETS)


def is_reference(value: object) -> bool:
    """Whether a value says where it lies."""
    return isinstance(value, str) and value.startswith(("env:", "file:"))


def refuse_plain(
    options: Mapping[str, Any], error: type[HeadraceError], secret: Callable[[str], bool] = is_secret
) -> None:
    """Refuse options that would put a secret into the home."""
    for name, value in options.items():
        if secret(name) and not is_reference(value):
            raise error(
                f"option {name} would keep a secret in the home",
                detail="What a statement says stays in the ledger, in backups and in SHOW.",
                hint=f"say where it lies instead: {name} = 'env:NAME' or 'file:/path'",
            )


def hidden(text: str, options: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """A text in which a reference stands for what it refers to: libraries tell what they were given."""
    for name, value in sorted(found.items(), key=lambda one: -len(str(one[1]))):
        given = options.get(name)
        if isinstance(value, str) and given != value and len(value) >= _LEAST_HIDDEN:
            # As it is, and as an error quotes it.
            text = text.replace(value, str(given)).replace(repr(value)[1:-1], str(given))
    return text


def referred_to(name: str, value: Any, error: type[HeadraceError], then: str) -> Any:
    """What a reference refers to; any other value is what it is. `then` is what to write once it is there."""
    if not isinstance(value, str):
        return value
    kind, _, where = value.partition(":")
    if kind == "env":
        found = os.environ.get(where)
        if found is None:
            raise error(
                f"the secret of option {name} is not there",
                detail=f"The environment has no {where}.",
                hint=f"set it for the process that owns the home, then {then}",
            )
        return found
    if kind == "file":
        try:
            return _content(Path(where)).strip()
        except (OSError, ValueError) as failed:
            reason = failed.strerror if isinstance(failed, OSError) else "It is no text"
            raise error(
                f"the secret of option {name} cannot be read",
                detail=f"{where}: {reason}.",
                hint=f"write it as {FORMS}, readable for the process that owns the home",
            ) from None
    return value


def _content(path: Path) -> str:
    """The text of a small file; a device or a pipe would hold up all who wait for the statement."""
    # Without waiting for whoever writes into it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "It is no file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(0, f"It has more than {_MOST_BYTES:,} bytes")
    return content.decode()
