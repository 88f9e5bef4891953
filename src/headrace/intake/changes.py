"""What `apply` may be given: changes by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import ChangesRejected, Rejection

_FORM = 'write {"table": [{"insert": row}, {"update": row}, {"delete": row}, ...]}, each row a dict by column names'


def refuse_no_changes(changes: object) -> None:
    """Nothing, or ChangesRejected where this is not lists of changes by table, but rows, a frame or a generator."""
    if not isinstance(changes, Mapping):
        raise _refusal("", f"changes come by table, not as {_kind(changes)}")
    for name, given in changes.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(name, str):
            raise _refusal("", f"{name!r} is no name of a table")
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise _refusal(name, f"a list of changes is wanted, not {_kind(given)}")  # pyright: ignore[reportUnknownArgumentType]


def _refusal(table: str, reason: str) -> ChangesRejected:
    return ChangesRejected([Rejection(table, 0, reason)], hint=_FORM)


def _kind(value: object) -> str:
    word = type(value).__name__
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"
