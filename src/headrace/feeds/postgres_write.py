"""Lines brought into a table: COPY into a temporary one, one DELETE, one INSERT ... ON CONFLICT.

The caller has the feed's row of headrace_feeds locked, so that no older rows come between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from psycopg import Cursor, Error, sql
from psycopg.errors import NotNullViolation

from headrace.feeds.postgres_names import Described, Mode
from headrace.feeds.postgres_rows import Lines
from headrace.feeds.postgres_state import Counts
from headrace.feeds.postgres_target import Layout, Names, listed
from headrace.feeds.postgres_types import Faults
from headrace.state.arrow_compute import pc

_STAGE = sql.Identifier("headrace_stage")
# Errors that a row of its own can cause, by class: its values (22), a constraint (23), a view's check option (44), an
# exception of a trigger (P0); and by code: two rows with one key, an index entry or a nesting that is too large.
# Any other error is one of the table, the session or the server, and every row would meet it.
_CLASSES_OF_A_ROW = frozenset({"22", "23", "44", "P0"})
_CODES_OF_A_ROW = frozenset({"21000", "54000", "54001"})


def is_of_a_row(error: Error) -> bool:
    """Return whether a row of its own can cause an error, rather than the table or the database."""
    state = error.sqlstate or ""
    return state[:2] in _CLASSES_OF_A_ROW or state in _CODES_OF_A_ROW


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


@dataclass(frozen=True)
class TableWriter:
    """Brings lines into one table, within a transaction of the caller."""

    cursor: Cursor[Any]
    # The target, or the table beside it that takes the rows of a scan; and its name alone.
    table: sql.Identifier
    name: str
    layout: Layout
    described: Described
    counts: Counts

    def write(self, lines: Lines, faults: Faults) -> Faults:
        """Bring a batch's lines into the table; return the events that it does not take, each with the reason.

        Of a key whose newest row is not taken, the newest that is taken is written. Faults that are known beforehand
        count only for rows that would be written.
        """
        refused: Faults = {}
        rest = lines
        adds = self.described.mode == "insert"
        while len(rest):
            newest = rest if adds else rest.taken(rest.newest())
            known = np.isin(newest.events, list(faults))
            bad = {event: faults[event] for event in newest.events[known].tolist()}
            bad |= self._write_in_pieces(newest.taken(~known))
            refused |= bad
            if not bad or adds:
                break
            keys = newest.keys.filter(pa.array(np.isin(newest.events, list(bad))))
            again = np.asarray(pc.is_in(rest.keys, value_set=keys))
            rest = rest.taken(again & ~np.isin(rest.events, list(refused)))
        return refused

    def _write_in_pieces(self, lines: Lines) -> Faults:
        """Write all lines; if rows among them are not taken, halve them until those are found."""
        if not len(lines):
            return {}
        try:
            with self.cursor.connection.transaction():
                deleted, written = self._write_once(lines)
        except Error as error:
            if not is_of_a_row(error) or self._lacks_a_column(error):
                raise
            if len(lines) == 1:
                return {int(lines.events[0]): reason_of(error)}
            middle = len(lines) // 2
            numbers = np.arange(len(lines))
            first = self._write_in_pieces(lines.taken(numbers[:middle]))
            return first | self._write_in_pieces(lines.taken(numbers[middle:]))
        self.counts.deleted += deleted
        self.counts.written += written
        return {}

    def _lacks_a_column(self, error: Error) -> bool:
        """Return whether the table wants a value in a column that the feed does not fill: no row is to blame."""
        return (
            isinstance(error, NotNullViolation)
            and error.diag.table_name == self.name
            and error.diag.column_name not in self.layout.columns.names
        )

    def _write_once(self, lines: Lines) -> tuple[int, int]:
        """Delete and insert the rows of lines; return how many of each."""
        with self.cursor.copy(sql.SQL("COPY pg_temp.{} FROM STDIN").format(_STAGE)) as copy:
            copy.write(lines.payload())
        deleted = written = 0
        if lines.gone.any():
            keys = [(key, self._staged(key)) for key in self.described.keys]
            for null in (False, True) if lines.null_key[lines.gone].any() else (False,):
                self.cursor.execute(
                    sql.SQL("DELETE FROM {} t USING pg_temp.{} s WHERE s.gone AND {}").format(
                        self.table, _STAGE, same_key(keys, null=null)
                    )
                )
                deleted += self.cursor.rowcount
        if not lines.gone.all():
            names = self.layout.columns.names
            self.cursor.execute(
                sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM pg_temp.{} s WHERE NOT s.gone{}").format(
                    self.table,
                    listed(names),
                    listed([self._staged(name) for name in names]),
                    _STAGE,
                    on_conflict(self.layout, self.described.mode),
                )
            )
            written = self.cursor.rowcount
        # The next piece finds it empty; the last is emptied by the commit.
        self.cursor.execute(sql.SQL("TRUNCATE pg_temp.{}").format(_STAGE))
        return deleted, written

    def _staged(self, name: str) -> str:
        """Return the name that a column has in the temporary table."""
        return f"c{self.layout.columns.names.index(name)}"


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


def _differs(name: str, kind: str) -> sql.Composed:
    # Values of json cannot be compared but as texts.
    cast = sql.SQL("::text" if kind == "json" else "")
    return sql.SQL("t.{0}{1} IS DISTINCT FROM EXCLUDED.{0}{1}").format(sql.Identifier(name), cast)
