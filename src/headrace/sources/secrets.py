"""Secrets by reference: what a statement keeps is where the secret lies, never the secret."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import SourceError

_FORMS = "env:NAME or file:/path"
# Options whose value is a secret by its name: a plain one is refused, for the ledger would keep it for ever.
_SECRET_WORDS = ("password", "secret", "jaas", "token", "passphrase")


def looked_up(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with every reference replaced by what it refers to."""
    return {name: _value(name, value) for name, value in options.items()}


def refuse_plain_secrets(options: Mapping[str, Any]) -> None:
    """Refuse options that would put a secret into the home."""
    for name, value in options.items():
        secret = any(word in name.lower() for word in _SECRET_WORDS)
        if secret and not str(value).startswith(("env:", "file:")):
            raise SourceError(
                f"option {name} would keep a secret in the home",
                detail="What a statement says stays in the ledger, in backups and in SHOW.",
                hint=f"say where it lies instead: {name} = 'env:KAFKA_PASSWORD' or 'file:/run/secrets/kafka'",
            )


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kind, _, where = value.partition(":")
    if kind == "env":
        found = os.environ.get(where)
        if found is None:
            raise SourceError(
                f"the secret of option {name} is not there",
                detail=f"The environment has no {where}.",
                hint="set it for the process that owns the home, then RESUME SOURCE",
            )
        return found
    if kind == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SourceError(
                f"the secret of option {name} cannot be read",
                detail=f"{where}: {error.strerror}.",
                hint=f"write it as {_FORMS}, readable for the process that owns the home",
            ) from error
    return value
