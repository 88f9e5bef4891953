"""Secrets of sources, by reference."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.errors import HeadraceError, SourceError
from headrace.secrets import hidden, is_secret, referred_to, refuse_plain
from headrace.sources.connectors import COMMON_OPTIONS, CONNECTORS, FORMAT_OPTIONS

__all__ = ["hidden", "looked_up", "refuse_plain_secrets", "secrets_hidden"]


def looked_up(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with every reference replaced by what it refers to.

    What cannot be a secret is taken as it is: who may name an option may not thereby read files and the environment.
    """
    return {
        name: value if name in _PLAIN else referred_to(name, value, SourceError, "RESUME SOURCE")
        for name, value in options.items()
    }


def refuse_plain_secrets(options: Mapping[str, Any]) -> None:
    """Refuse options that would put a secret into the home."""
    refuse_plain(options, SourceError)


@contextmanager
def secrets_hidden(options: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Inside, the options as they are looked up; no error tells what they are."""
    found = looked_up(options)
    try:
        yield found
    except HeadraceError as error:
        error.message, error.detail, error.hint = (
            hidden(part, options, found) for part in (error.message, error.detail, error.hint)
        )
        raise


_ASKED = ("registry_user", "registry_password", "registry_token")
_OWN = {name for one in CONNECTORS.values() for name in one.options if "*" not in name and not is_secret(name)}
_PLAIN = frozenset({*COMMON_OPTIONS, *FORMAT_OPTIONS, *_OWN}.difference(_ASKED))
