"""Lines brought into a table: COPY into a temporary one, one DELETE, one INSERT ... ON CONFLICT.

Whoever calls has the feed's row locked, so that nothing older than what is there comes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from psycopg import Cursor, Error, sql

from headrace.feeds.postgres_names import Mode
from headrace.feeds.postgres_rows import Lines
from headrace.feeds.postgres_state import Counts
from headrace.feeds.postgres_target import Layout, Names, listed
from headrace.feeds.postgres_types import Faults

_STAGE = sql.Identifier("headrace_stage")
# What a row can be to blame for: its values, the constraints and triggers of the table, the size of an index entry.
_OF_A_ROW = ("22", "23", "44", "54", "P0")
_TWICE_IN_ONE = "21000"


def is_of_a_row(error: Error) -> bool:
    """Whether an error tells of a row rather than of the database."""
    return error.sqlstate is not None and (error.sqlstate[:2] in _OF_A_ROW or error.sqlstate == _TWICE_IN_ONE)


def reason_of(error: Error) -> str:
    """What PostgreSQL says of a row, in a line."""
    detail = error.diag.message_detail
    return f"{error.diag.message_primary or error}" + (f" ({detail})" if detail else "")


def make_stage(cursor: Cursor[Any], names: Names, layout: Layout) -> None:
    """Make the temporary table for lines; its columns are of the target's types, and are numbered."""
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(_STAGE))
    columns = [
        sql.SQL("{} AS {}").format(sql.Identifier(name), sql.Identifier(f"c{index}"))
        for index, name in enumerate(layout.columns.names)
    ]
    cursor.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT false AS gone, {} FROM {} WITH NO DATA"
        ).format(_STAGE, sql.SQL(", ").join(columns), names.target)
    )


def write(
    cursor: Cursor[Any], table: sql.Identifier, layout: Layout, mode: Mode, lines: Lines, faults: Faults, counts: Counts
) -> Faults:
    """Bring a batch's lines into a table; return the events that it does not take, each with the reason.

    Of a key whose newest row is not taken, the newest that is taken is written. Faults that are known beforehand count
    only for rows that would be written.
    """
    refused: Faults = {}
    rest = lines
    while len(rest):
        newest = rest.taken(rest.newest()) if mode != "insert" else rest
        known = np.asarray([event in faults and not gone for event, gone in _pairs(newest)], dtype=bool)
        bad = {int(event): faults[int(event)] for event in newest.events[known]}
        bad |= _in_pieces(cursor, table, layout, mode, newest.taken(~known), counts)
        refused |= bad
        if not bad or mode == "insert":
            break
        keys = {key for event, key in zip(newest.events.tolist(), newest.keys.to_pylist(), strict=True) if event in bad}
        again = [
            event not in refused and key in keys
            for event, key in zip(rest.events.tolist(), rest.keys.to_pylist(), strict=True)
        ]
        rest = rest.taken(np.asarray(again, dtype=bool))
    return refused


def _pairs(lines: Lines) -> zip[tuple[int, bool]]:
    return zip(lines.events.tolist(), lines.gone.tolist(), strict=True)


def _in_pieces(
    cursor: Cursor[Any], table: sql.Identifier, layout: Layout, mode: Mode, lines: Lines, counts: Counts
) -> Faults:
    """Write all lines; if rows among them are not taken, halve them until those are found."""
    if not len(lines):
        return {}
    try:
        with cursor.connection.transaction():
            deleted, written = _write_once(cursor, table, layout, mode, lines)
    except Error as error:
        if not is_of_a_row(error):
            raise
        if len(lines) == 1:
            return {int(lines.events[0]): reason_of(error)}
        middle = len(lines) // 2
        numbers = np.arange(len(lines))
        first = _in_pieces(cursor, table, layout, mode, lines.taken(numbers[:middle]), counts)
        return first | _in_pieces(cursor, table, layout, mode, lines.taken(numbers[middle:]), counts)
    counts.deleted += deleted
    counts.written += written
    return {}


def _write_once(
    cursor: Cursor[Any], table: sql.Identifier, layout: Layout, mode: Mode, lines: Lines
) -> tuple[int, int]:
    with cursor.copy(sql.SQL("COPY pg_temp.{} FROM STDIN").format(_STAGE)) as copy:
        copy.write(lines.payload())
    deleted = written = 0
    keys = _keys(layout)
    if lines.gone.any():
        for null in (False, True) if lines.null_key[lines.gone].any() else (False,):
            cursor.execute(
                sql.SQL("DELETE FROM {} t USING pg_temp.{} s WHERE s.gone AND {}").format(
                    table, _STAGE, same_key(keys, null=null)
                )
            )
            deleted += cursor.rowcount
    if not lines.gone.all():
        numbered = [f"c{index}" for index in range(len(layout.columns.names))]
        cursor.execute(
            sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM pg_temp.{} s WHERE NOT s.gone{}").format(
                table, listed(layout.columns.names), listed(numbered), _STAGE, on_conflict(layout, mode)
            )
        )
        written = cursor.rowcount
    # The next piece finds it empty; the last is emptied by the commit.
    cursor.execute(sql.SQL("TRUNCATE pg_temp.{}").format(_STAGE))
    return deleted, written


def on_conflict(layout: Layout, mode: Mode, *, only_changed: bool = False) -> sql.Composable:
    """What becomes of a row that is there already."""
    if layout.unique is None:
        return sql.SQL("")
    rest = [name for name in layout.columns.names if name not in layout.unique.columns]
    keys = listed(sorted(layout.unique.columns))
    if mode == "insert" or not rest:
        return sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(keys)
    assigned = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in rest)
    clause = sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(keys, assigned)
    if not only_changed:
        return clause
    differs = sql.SQL(" OR ").join(_differs(name, layout.types[name]) for name in rest)
    return sql.SQL("{} WHERE {}").format(clause, differs)


def same_key(columns: Sequence[tuple[str, str]], *, null: bool) -> sql.Composed:
    """Whether a row of t has the key of one of s: by its index, or, if a part of it is NULL, as texts, by a hash."""
    names = [name for name, _ in columns]
    if null:
        return sql.SQL("{} AND ROW({})::text = ROW({})::text").format(
            has_null(names), listed(names, "t"), listed([staged for _, staged in columns], "s")
        )
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier("t", name), sql.Identifier("s", staged)) for name, staged in columns
    )


def has_null(keys: Sequence[str]) -> sql.Composed:
    """Whether a part of the key of a row of t is NULL."""
    parts = [sql.SQL("{} IS NULL").format(sql.Identifier("t", name)) for name in keys]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(parts))


def _keys(layout: Layout) -> list[tuple[str, str]]:
    names = layout.columns.names
    return [(name, f"c{names.index(name)}") for name in sorted(layout.unique.columns if layout.unique else ())]


def _differs(name: str, kind: str) -> sql.Composed:
    # Values of json cannot be compared but as texts.
    cast = sql.SQL("::text" if kind == "json" else "")
    return sql.SQL("t.{0}{1} IS DISTINCT FROM EXCLUDED.{0}{1}").format(sql.Identifier(name), cast)
