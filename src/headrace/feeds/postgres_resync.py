"""All rows of a relation anew: they are gathered in a table beside the target, and then take its rows' place at once.

The target itself stays, with its rights, its views and whatever else leans on it. Readers see the old rows until the
commit, and the new ones from then on; a row that is the same before and after is not touched.
"""

from __future__ import annotations

from typing import Any

from psycopg import Cursor, sql

from headrace.feeds.postgres_names import Described
from headrace.feeds.postgres_state import Counts
from headrace.feeds.postgres_target import Layout, Names, add_unique, listed
from headrace.feeds.postgres_write import has_null, on_conflict, same_key


def begin_beside(cursor: Cursor[Any], names: Names, described: Described, layout: Layout) -> None:
    """Make the table beside, which takes what the target takes."""
    cursor.execute(
        sql.SQL(
            "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING IDENTITY)"
        ).format(names.scan, names.target)
    )
    if layout.unique is not None:
        add_unique(cursor, names.scan, described.scan_table, described.keys, nulls_equal=layout.unique.nulls_equal)


def replace_rows(cursor: Cursor[Any], names: Names, described: Described, layout: Layout) -> Counts:
    """Bring the target to what is beside it, as its mode has it, and drop that."""
    counts = Counts()
    cursor.execute(sql.SQL("ANALYZE {}").format(names.scan))
    keys = [(key, key) for key in described.keys]
    if layout.unique is None:
        # Rows without a key cannot be told apart: all are exchanged.
        cursor.execute(sql.SQL("DELETE FROM {}").format(names.target))
        counts.deleted += cursor.rowcount
    elif described.mode == "mirror":
        for null in (False, True) if layout.unique.nulls_equal else (False,):
            some = has_null(described.keys)
            cursor.execute(
                sql.SQL("DELETE FROM {} t WHERE {} AND NOT EXISTS (SELECT FROM {} s WHERE {})").format(
                    names.target,
                    some if null else sql.SQL("NOT {}").format(some),
                    names.scan,
                    same_key(keys, null=null),
                )
            )
            counts.deleted += cursor.rowcount
    cursor.execute(
        sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {} s{}").format(
            names.target,
            listed(layout.columns.names),
            listed(layout.columns.names),
            names.scan,
            on_conflict(layout, described.mode, only_changed=True),
        )
    )
    counts.written += cursor.rowcount
    cursor.execute(sql.SQL("DROP TABLE {}").format(names.scan))
    return counts
