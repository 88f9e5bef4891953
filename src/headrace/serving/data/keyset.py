"""The question of a page as SQL of PostgreSQL: names from the catalog, values as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql
from pyspark.sql.types import StringType, StructType

from headrace.feeds.postgres_target import FEEDS
from headrace.reading.access import Condition, Index, IndexColumn
from headrace.serving.data.tables import ServingTable

_COMPARED = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
Parameters = list[Any]

# One statement, so that how far the feed is belongs to the very rows that are read, also where there are none.
_PAGE = """
SELECT {picked}, d.found, f.epoch, f.sequence, f.scan, f.version
FROM ({mark}) f
LEFT JOIN LATERAL (
    SELECT TRUE AS found, {columns} FROM {table} WHERE {conditions} ORDER BY {order} LIMIT %s OFFSET %s
) d ON TRUE
ORDER BY {outer_order}
"""
# While refused events wait, others arrive and the sequence stands still: only `told` changes with each of them.
# Of an epoch that the feed has delivered in part, the table has no whole state: the one before it is the last.
_MARK = """
SELECT CASE WHEN event > 0 THEN epoch - 1 ELSE epoch END AS epoch, sequence, scan, md5(told) AS version
FROM {feeds} WHERE feed_id = %s
"""


def mark_sql(table: ServingTable) -> sql.Composed:
    """Return the statement that reads the last whole epoch of a table, and the last event in it."""
    return sql.SQL(_MARK).format(feeds=_named(table, FEEDS))


def page_sql(
    table: ServingTable,
    schema: StructType,
    columns: Sequence[str],
    conditions: Sequence[Condition],
    order: Index,
    after: Sequence[Any] | None,
) -> tuple[sql.Composed, Parameters]:
    """The statement, and its parameters but for the feed before them and limit and offset behind them."""
    parameters: Parameters = []
    parts: list[sql.Composable] = [sql.SQL("TRUE")]
    for one in conditions:
        parts.append(_compared(schema, one.column, _COMPARED[one.operator], collated=one.operator != "eq"))
        parameters.append(one.value)
    if after is not None:
        parts.append(_behind(schema, order, after, table.keys, parameters))
    names = [sql.Identifier(f"c{index}") for index in range(len(columns))]
    outer = [_ordered(schema, one, sql.SQL("d.{}").format(names[columns.index(one.name)])) for one in order]
    return sql.SQL(_PAGE).format(
        picked=sql.SQL(", ").join(sql.SQL("d.{}").format(name) for name in names),
        mark=mark_sql(table),
        columns=sql.SQL(", ").join(
            sql.SQL("{} AS {}").format(sql.Identifier(column), name)
            for column, name in zip(columns, names, strict=True)
        ),
        table=_named(table, table.table),
        conditions=sql.SQL(" AND ").join(parts),
        order=sql.SQL(", ").join(_ordered(schema, one, sql.Identifier(one.name)) for one in order),
        outer_order=sql.SQL(", ").join(outer),
    ), parameters


def _behind(
    schema: StructType, order: Index, after: Sequence[Any], keys: Sequence[str], parameters: Parameters
) -> sql.Composable:
    """The rows that stand behind a place: larger in one column of the order, and equal in all before it."""
    first, value = order[0], after[0]
    bound: list[sql.Composable] = []
    if value is not None and (first.descending or first.name in keys):
        # Says nothing new, but lets the index begin at the place.
        bound.append(_compared(schema, first.name, "<=" if first.descending else ">=", collated=True))
        parameters.append(value)
    ways: list[sql.Composable] = []
    for index, one in enumerate(order):
        step = _further(schema, one, after[index])
        if step is None:
            continue
        equal: list[sql.Composable] = []
        for before, held in zip(order[:index], after[:index], strict=True):
            if held is None:
                equal.append(sql.SQL("{} IS NULL").format(sql.Identifier(before.name)))
            else:
                equal.append(_compared(schema, before.name, "=", collated=False))
                parameters.append(held)
        condition, values = step
        parameters.extend(values)
        ways.append(sql.SQL("({})").format(sql.SQL(" AND ").join([*equal, condition])))
    any_way = sql.SQL("({})").format(sql.SQL(" OR ").join(ways)) if ways else sql.SQL("FALSE")
    return sql.SQL(" AND ").join([*bound, any_way])


def _further(schema: StructType, one: IndexColumn, value: Any) -> tuple[sql.Composable, list[Any]] | None:
    """What stands behind a value in one column, where NULL is the largest; None if nothing does."""
    name = sql.Identifier(one.name)
    if value is None:
        return (sql.SQL("{} IS NOT NULL").format(name), []) if one.descending else None
    if one.descending:
        return _compared(schema, one.name, "<", collated=True), [value]
    larger = _compared(schema, one.name, ">", collated=True)
    return sql.SQL("({} OR {} IS NULL)").format(larger, name), [value]


def _compared(schema: StructType, column: str, sign: str, *, collated: bool) -> sql.Composable:
    by_bytes = sql.SQL(' COLLATE "C"') if collated and _is_text(schema, column) else sql.SQL("")
    return sql.SQL("{}{} {} %s").format(sql.Identifier(column), by_bytes, sql.SQL(sign))  # pyright: ignore[reportArgumentType]


def _ordered(schema: StructType, one: IndexColumn, name: sql.Composable) -> sql.Composable:
    by_bytes = sql.SQL(' COLLATE "C"') if _is_text(schema, one.name) else sql.SQL("")
    return sql.SQL("{}{}{}").format(name, by_bytes, sql.SQL(" DESC" if one.descending else ""))


def _is_text(schema: StructType, column: str) -> bool:
    return isinstance(schema[column].dataType, StringType)


def _named(table: ServingTable, name: str) -> sql.Identifier:
    return sql.Identifier(table.schema, name) if table.schema else sql.Identifier(name)
