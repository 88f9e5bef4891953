"""All rows of a relation again: they are gathered in a table beside the target, and then brought into it at once.

The target itself stays, with its rights, its views and whatever else leans on it. Readers see the old rows until the
commit, and the new ones from then on; a row that is the same before and after is not touched.
"""

from __future__ import annotations

from typing import Any

from psycopg import Cursor, sql

from headrace.feeds.postgres_names import Described
from headrace.feeds.postgres_session import limit_long
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


def bring_rows(cursor: Cursor[Any], names: Names, described: Described, layout: Layout, *, append: bool) -> Counts:
    """Bring the rows beside the target into it, as its mode asks for, and drop the table beside it.

    Only mode 'mirror' deletes rows. Where there is no key, `append` adds all rows, and else those that the target does
    not have, as often as it lacks them.
    """
    counts = Counts()
    limit_long(cursor)
    cursor.execute(sql.SQL("ANALYZE {}").format(names.scan))
    keys = [(key, key) for key in described.keys]
    if described.mode == "mirror" and layout.unique is not None:
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
    columns = listed(layout.columns.names)
    added = names.scan if append or layout.unique is not None else _lacking(names, layout)
    cursor.execute(
        sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {} s{}").format(
            names.target, columns, columns, added, on_conflict(layout, described.mode, only_changed=True)
        )
    )
    counts.written += cursor.rowcount
    cursor.execute(sql.SQL("DROP TABLE {}").format(names.scan))
    return counts


def _lacking(names: Names, layout: Layout) -> sql.Composed:
    """Return the rows beside the target that the target has fewer of; as texts, since json cannot be compared."""
    columns = layout.columns.names
    return sql.SQL(
        "(SELECT {} FROM "
        "(SELECT s AS whole, ROW({})::text AS line, row_number() OVER (PARTITION BY ROW({})::text) AS place FROM {} s) "
        "found LEFT JOIN (SELECT ROW({})::text AS line, count(*) AS present FROM {} t GROUP BY 1) held "
        "USING (line) WHERE place > coalesce(present, 0))"
    ).format(
        sql.SQL(", ").join(sql.SQL("(whole).{}").format(sql.Identifier(name)) for name in columns),
        listed(columns, "s"),
        listed(columns, "s"),
        names.scan,
        listed(columns, "t"),
        names.target,
    )
