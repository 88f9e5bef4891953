"""The tables that a source names, looked for in its database: before its connector begins, and now and then after.

A connector passes over a name that no table has, and goes on without a word when a table is renamed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.capture.name_patterns import name_pattern
from headrace.errors import SourceError


@dataclass(frozen=True)
class Found:
    """A table that a database has.

    `remedy` is the statement without which PostgreSQL refuses to update and delete its rows as soon as it is
    `published`.
    """

    name: str
    remedy: str = ""
    published: bool = False


def like(name: str, tables: Sequence[str]) -> str:
    """A condition of SQL that holds at least for the tables: what is more than they name is left out of the answer."""
    # Nothing of what people write is text of the statement but letters and digits; an _ stands for any character.
    patterns = [re.sub(r"[^a-z0-9.*]", "_", one.lower()).replace("*", "%") for one in tables]
    return "(" + " OR ".join(f"lower({name}) LIKE '{one}'" for one in patterns) + ")"


def found_of(rows: Sequence[Sequence[str | None]], tables: Sequence[str]) -> list[Found]:
    """The tables of an answer that are among those named, as a connector tells them: in any case of letters."""
    patterns = [_pattern(one) for one in tables]
    listed = [Found(name or "", remedy or "", published == "true") for name, remedy, published in rows]
    return [one for one in listed if any(pattern.fullmatch(one.name) for pattern in patterns)]


def refuse(source: str, tables: Sequence[str], found: Sequence[Found], *, begins: bool) -> None:
    """Refuse to begin where a table is named that is not there, or where to publish one would stop its writers."""
    missing = [one for one in _missing(tables, found) if "*" not in one]
    if missing and begins:
        raise SourceError(
            f"the database of source {source} has no table {', '.join(missing)}",
            hint=f"see its spelling and its schema in the option tables, then RESUME SOURCE {source}",
        )
    bare = [one for one in found if one.remedy and not one.published]
    if bare:
        raise SourceError(
            f"the tables of source {source} have no replica identity: {', '.join(one.name for one in bare)}",
            detail="They have no primary key that tells their rows apart, or do not log it. Once they are published, "
            "PostgreSQL refuses every UPDATE and DELETE of them, whoever asks for it.",
            hint=f"there: {'; '.join(one.remedy for one in bare)}; then RESUME SOURCE {source}",
        )


def warning(tables: Sequence[str], found: Sequence[Found]) -> str | None:
    """What people should know of the tables of a source that is read; None if all is well."""
    missing = _missing(tables, found)
    bare = [one for one in found if one.remedy and one.published]
    told: list[str] = []
    if missing:
        told.append(f"the database has no table {', '.join(missing)}: nothing comes of it")
    if bare:
        told.append(
            f"PostgreSQL refuses to update and delete rows of {', '.join(one.name for one in bare)}, which has no "
            f"replica identity and is published: {'; '.join(one.remedy for one in bare)}"
        )
    return ". ".join(told) or None


def _missing(tables: Sequence[str], found: Sequence[Found]) -> list[str]:
    names = [one.name for one in found]
    return [one for one in tables if not any(_pattern(one).fullmatch(name) for name in names)]


def _pattern(table: str) -> re.Pattern[str]:
    return re.compile(name_pattern(table), re.IGNORECASE)
