"""Changes as they are given to a home, and rows as they are read from it."""

from __future__ import annotations

from typing import Any

Change = dict[str, dict[str, Any]]


def insert(**row: Any) -> Change:
    return {"insert": row}


def delete(**row: Any) -> Change:
    return {"delete": row}


def rows(hr: Any, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    """What a query answers, in an order of their own."""
    return sorted((tuple(row.values()) for row in hr.query(sql, **options).to_pylist()), key=repr)


def rows_of(hr: Any, name: str) -> list[tuple[Any, ...]]:
    return rows(hr, f"SELECT * FROM {name}")
