"""What a statement says of a PostgreSQL target: where its table is, its key and its indexes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

from headrace.errors import FeedError
from headrace.feeds.sink import Target

Mode = Literal["mirror", "upsert", "insert"]
MODES: tuple[Mode, ...] = ("mirror", "upsert", "insert")

# PostgreSQL cuts longer ones off, so that two may become one.
_MOST_BYTES = 63
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
_EXAMPLE = "postgresql://user@host:5432/database/table"
_TOKEN = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<sign>[,;])|(?P<word>[^\s,;"]+))')


@dataclass(frozen=True)
class IndexColumn:
    """A column of an index, and how it is ordered."""

    name: str
    descending: bool = False
    # NULLs come last if a column rises and first if it falls, where nobody says.
    nulls: Literal["FIRST", "LAST"] | None = None


@dataclass(frozen=True)
class Described:
    """A target as its statement describes it, checked."""

    # The URL of the database alone; a password may be in it.
    database: str
    schema: str | None
    table: str
    mode: Mode
    # Empty if rows are only added, to a table without a key.
    keys: tuple[str, ...]
    # Whether the statement names the key: then a NULL in it is an error of its row.
    keys_named: bool
    indexes: tuple[tuple[IndexColumn, ...], ...]
    # One that no other feed uses.
    scan_table: str
    # Whether rows that the feed did not write may be deleted.
    take_over: bool = False


def read_target(target: Target) -> Described:
    """What a statement says, or `FeedError` with what is wrong about it."""
    database, schema, table = read_location(target.location)
    columns = {name.casefold(): name for name in target.columns.names}
    for name in target.columns.names:
        _check_name("column", name)
        if name.lower() in _SYSTEM_COLUMNS:
            raise FeedError(
                f"PostgreSQL takes no column called {name}",
                detail="Each of its tables has a column of that name for itself.",
                hint="give the column another name in a view, and make the feed for that",
            )
    mode = str(target.options.get("mode", MODES[0])).lower()
    if mode not in MODES:
        raise FeedError(f"mode cannot be {mode!r}", hint=f"it is one of {', '.join(MODES)}")
    if not target.has_key and mode != "insert":
        raise FeedError(
            f"{target.table} has no key by which its rows could be changed in PostgreSQL",
            detail="A row without a key can only be added.",
            hint="name the columns that tell its rows apart, as keys = 'a, b', or write mode = 'insert'",
        )
    take_over = target.options.get("take_over", False)
    if not isinstance(take_over, bool):
        raise FeedError(f"take_over cannot be {take_over!r}", hint="it is true or false")
    return Described(
        database=database,
        schema=schema,
        table=table,
        mode=mode,
        keys=target.key if target.has_key else (),
        keys_named=target.options.get("keys") is not None,
        indexes=read_indexes(str(target.options.get("indexes", "")), columns),
        scan_table=_scan_table(target),
        take_over=take_over,
    )


def read_place(target: Target) -> Described:
    """Where a target is, whatever became of the relation that goes there and of its columns."""
    database, schema, table = read_location(target.location)
    return Described(
        database, schema, table, "insert", (), keys_named=False, indexes=(), scan_table=_scan_table(target)
    )


def _scan_table(target: Target) -> str:
    return f"headrace_scan_{hashlib.sha256(target.feed_id.encode()).hexdigest()[:16]}"


def read_location(location: str) -> tuple[str, str | None, str]:
    """The URL of the database, the schema if one is named, and the table."""
    try:
        url = urlsplit(location)
        url.port  # noqa: B018
    except ValueError as error:
        raise FeedError("the URL of a PostgreSQL cannot be read", hint=f"write it as '{_EXAMPLE}'") from error
    parts = url.path.split("/")
    if url.scheme not in ("postgresql", "postgres") or len(parts) != 3 or not parts[1] or not parts[2]:
        raise FeedError(
            "a feed into PostgreSQL needs the URL of a database and the name of a table after it",
            detail="A / or . that is part of a name is written as %2F or %2E.",
            hint=f"write it as '{_EXAMPLE}' or '.../database/schema.table'",
        )
    first, dot, second = parts[2].partition(".")
    names = [unquote(name) for name in ([first, second] if dot else [first])]
    for name in names:
        _check_name("table", name)
    database = url._replace(scheme="postgresql", path=f"/{parts[1]}", fragment="").geturl()
    return database, names[0] if dot else None, names[-1]


def read_keys(text: str, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that 'a, b' names, of columns that are given by their names in small letters."""
    keys = tuple(one.name for one in _columns_of("keys", _tokens("keys", text), columns, ordered=False))
    if len(set(keys)) != len(keys):
        raise FeedError("keys names a column twice", hint="name each column of the key once")
    return keys


def read_indexes(text: str, columns: Mapping[str, str]) -> tuple[tuple[IndexColumn, ...], ...]:
    """Indexes as 'user_id; user_id, timestamp DESC', over columns that are given by their names in small letters."""
    read: list[tuple[IndexColumn, ...]] = []
    tokens = _tokens("indexes", text)
    while tokens:
        end = tokens.index((";", True)) if (";", True) in tokens else len(tokens)
        if tokens[:end]:
            index = _columns_of("indexes", tokens[:end], columns, ordered=True)
            if len({one.name for one in index}) != len(index):
                raise FeedError("an index names a column twice", hint="name each column of an index once")
            read.append(index)
        tokens = tokens[end + 1 :]
    return tuple(dict.fromkeys(read))


def index_name(table: str, index: Sequence[IndexColumn]) -> str:
    """The name of an index: the same whenever it is asked for, of at most 63 bytes."""
    told = "; ".join(f"{one.name} {one.descending} {one.nulls}" for one in index)
    mark = hashlib.sha256(f"{table}\0{told}".encode()).hexdigest()[:8]
    words = "_".join((table, *(one.name for one in index))).encode()[: _MOST_BYTES - 13].decode(errors="ignore")
    return f"{words}_{mark}_idx"


def _tokens(option: str, text: str) -> list[tuple[str, bool]]:
    """Words and quoted names, and the signs between them, which are told apart by the second part."""
    found: list[tuple[str, bool]] = []
    at = 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise FeedError(
                f"{option} cannot be read from {text[at:].strip()[:40]!r} on", hint='a quoted name ends with "'
            )
        at = token.end()
        if token["quoted"] is not None:
            # What is quoted is a name, also where it is a word of SQL.
            found.append(('"' + token["quoted"].replace('""', '"'), False))
        elif token["sign"]:
            found.append((token["sign"], True))
        else:
            found.append((token["word"], False))
    return found


def _columns_of(
    option: str, tokens: Sequence[tuple[str, bool]], columns: Mapping[str, str], *, ordered: bool
) -> tuple[IndexColumn, ...]:
    read: list[IndexColumn] = []
    rest = list(tokens)
    while True:
        end = rest.index((",", True)) if (",", True) in rest else len(rest)
        words = [word for word, _ in rest[:end]]
        if not words:
            raise FeedError(f"{option} lacks a column where one must be", hint=f"{option} = 'a, b'")
        name = columns.get(words[0].removeprefix('"').casefold())
        if name is None:
            raise FeedError(
                f"{option} names {words[0].strip(chr(34))}, which is no column",
                hint=f"the columns are {', '.join(columns.values())}",
            )
        read.append(_ordered(option, name, [word.upper() for word in words[1:]] if ordered else words[1:], ordered))
        if end == len(rest):
            return tuple(read)
        rest = rest[end + 1 :]


def _ordered(option: str, name: str, words: Sequence[str], ordered: bool) -> IndexColumn:
    rest = list(words)
    descending, nulls = False, None
    if ordered and rest and rest[0] in ("ASC", "DESC"):
        descending = rest.pop(0) == "DESC"
    if ordered and rest[:1] == ["NULLS"] and rest[1:2] in (["FIRST"], ["LAST"]):
        nulls = cast(Literal["FIRST", "LAST"], rest[1])
        rest = rest[2:]
    if rest:
        raise FeedError(
            f"{option} cannot have {' '.join(rest)[:40]!r} after {name}",
            hint="a column of an index may be followed by ASC or DESC and NULLS FIRST or NULLS LAST; a , goes between "
            "columns, a ; between indexes"
            if ordered
            else "write the columns of the key with a , between them",
        )
    return IndexColumn(name, descending, nulls)


def _check_name(what: str, name: str) -> None:
    if not name or "\0" in name or len(name.encode(errors="surrogatepass")) > _MOST_BYTES:
        raise FeedError(
            f"PostgreSQL takes no {what} called {name[:80]!r}",
            detail=f"A name has 1 to {_MOST_BYTES} bytes there, and no NUL.",
            hint="give it a shorter name" + (" in a view, and make the feed for that" if what == "column" else ""),
        )
