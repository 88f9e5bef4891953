"""Which names a user may give to relations and columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

RESERVED_PREFIX = "_headrace"
CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")

_RELATION_NAME = re.compile(r"[A-Za-z0-9_]+")
# A file's name may have 255 bytes; beside a relation's name, those of its files hold up to 106 of their own.
_LONGEST_RELATION = 128
_LONGEST_COLUMN = 255
_SHOWN = 60


@dataclass(frozen=True)
class Name:
    """A name in lower case, by which it is found, and as it was spelled, with its position."""

    name: str
    spelled: str
    line: int
    column: int


def shortened(name: str) -> str:
    """The name as an error shows it: whoever gave one that is too long knows how it begins."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def quoted(name: str) -> str:
    """The name as SQL takes it literally, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def relation_name_fault(name: str) -> str:
    """Why no relation may be given this name, or nothing."""
    if not _RELATION_NAME.fullmatch(name):
        return "a relation's name consists of the letters a to z, digits and _"
    if name.lower().startswith(RESERVED_PREFIX):
        return f"names beginning with {RESERVED_PREFIX} are reserved"
    if len(name) > _LONGEST_RELATION:
        return f"a relation's name has at most {_LONGEST_RELATION} letters"
    return ""


def column_name_fault(name: str) -> str:
    """Why no column may be given this name, or nothing."""
    for prefix in (RESERVED_PREFIX, *CHANGE_COLUMNS):
        if name.lower().startswith(prefix):
            return f"columns beginning with {prefix} are reserved"
    if len(name) > _LONGEST_COLUMN:
        return f"a column's name has at most {_LONGEST_COLUMN} letters"
    return ""
