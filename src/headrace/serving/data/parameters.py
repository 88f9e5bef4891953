"""What a request to the data API asks for, by PostgREST's conventions: column=operator.value, select, order, limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql.types import BooleanType, DataType, DoubleType, FloatType, IntegralType

from headrace.intake.reasons import BadValue
from headrace.intake.reasons import shown as shown_value
from headrace.reading.access import Access, Condition, IndexColumn, Operator, find_access, total
from headrace.serving.data.shown import Shown
from headrace.serving.problems import Refusal
from headrace.settings import Settings

RESERVED = ("select", "order", "limit", "offset", "cursor")
_FORMS = {"select": "; * is all of them", "order": "; an order is column.asc or column.desc"}
_OPERATORS: dict[str, Operator] = {"eq": "eq", "gt": "gt", "gte": "gte", "lt": "lt", "lte": "lte"}
# Those of PostgREST that there are not: taken for a value they would silently find nothing.
_OTHERS = frozenset(
    ("neq", "like", "ilike", "match", "imatch", "in", "is", "isdistinct", "fts", "plfts", "phfts", "wfts", "not")
)
_DEFAULT_LIMIT = 100
_MOST_CONDITIONS = 32
_LONGEST_VALUE = 10_000


@dataclass(frozen=True)
class Asked:
    """What is asked of a relation."""

    fields: tuple[str, ...]
    conditions: tuple[Condition, ...]
    order: tuple[IndexColumn, ...]
    limit: int
    offset: int
    cursor: str


def read_parameters(shown: Shown, given: Iterable[tuple[str, str]], settings: Settings) -> Asked:
    """The parameters of a request; 400 with the one that is wrong."""
    reserved: dict[str, str] = {}
    conditions: list[Condition] = []
    for name, value in given:
        if name in RESERVED:
            if name in reserved:
                raise bad_parameter(name, "it is given twice", "give it once")
            reserved[name] = value
        else:
            conditions.append(_condition(shown, name, value))
    if len(conditions) > _MOST_CONDITIONS:
        raise bad_parameter(conditions[-1].column, f"more than {_MOST_CONDITIONS} conditions", "ask for less at once")
    cursor = reserved.get("cursor", "")
    offset = _number(reserved, "offset", 0, 0, settings.data_offset_rows)
    if cursor and offset:
        raise bad_parameter("offset", "a cursor is given, too", "go on by the one or by the other")
    limit = _number(reserved, "limit", min(_DEFAULT_LIMIT, settings.data_page_rows), 1, settings.data_page_rows)
    order = _order(shown, reserved.get("order", ""))
    return Asked(_fields(shown, reserved.get("select", "")), tuple(conditions), order, limit, offset, cursor)


def key_conditions(shown: Shown, text: str) -> tuple[Condition, ...]:
    """The conditions that a key in a path stands for; one of several columns has commas between its values."""
    if not shown.key:
        raise Refusal(
            404,
            "no_key",
            f"{shown.name} has no key",
            detail="Nothing tells which columns its rows are told apart by.",
            hint="name them in HEADRACE_DATA_KEYS, or ask with conditions",
        )
    values = [text] if len(shown.key) == 1 else text.split(",")
    if len(values) != len(shown.key):
        raise Refusal(
            400,
            "bad_parameter",
            f"the key of {shown.name} has {len(shown.key)} columns, and {len(values)} values are given",
            detail=f"They are {', '.join(shown.key)}.",
            hint="put commas between the values; one with a comma in it is asked for by conditions, as column=eq.value",
        )
    return tuple(_compared(shown, name, "eq", value) for name, value in zip(shown.key, values, strict=True))


def access_of(shown: Shown, asked: Asked, is_small: bool) -> Access:
    """The way to the rows; 400 if the only one is to read all of a large relation."""
    found = find_access(shown.key, shown.indexes, asked.conditions, asked.order)
    if found is not None:
        return found
    if is_small:
        return Access("scan", (), total(asked.order, shown.key) or shown.indexes[-1])
    named = [one.column for one in asked.conditions] + [one.name for one in asked.order]
    ways = "; ".join(", ".join(f"{one.name}{' DESC' if one.descending else ''}" for one in i) for i in shown.indexes)
    raise Refusal(
        400,
        "not_indexed",
        f"{shown.name} has no index for this by {', '.join(dict.fromkeys(named))}",
        detail=f"Its key is ({', '.join(shown.key)}); its indexes are ({ways}). Equalities are on the first "
        "columns of one, a range on the next, and the order goes on along it, or all of it the other way round.",
        hint="ask by one of these, declare another in HEADRACE_DATA_INDEXES, or ask with POST /v1/query",
    )


def bad_parameter(name: str, why: str, hint: str) -> Refusal:
    """The refusal of one parameter."""
    return Refusal(400, "bad_parameter", f"parameter {name[:100]} cannot be taken", detail=f"{why}."[:1000], hint=hint)


def _condition(shown: Shown, name: str, given: str) -> Condition:
    column = shown.columns.get(name.lower())
    if column is None:
        raise bad_parameter(
            name,
            f"{shown.name} has no such column",
            f"the columns are {', '.join(shown.schema.names[:50])}; what else is asked by is {', '.join(RESERVED)}",
        )
    word, dot, value = given.partition(".")
    if dot and word in _OTHERS:
        raise bad_parameter(
            name,
            f"there is no operator {word}",
            f"there are {', '.join(_OPERATORS)}; any other condition is asked with POST /v1/query",
        )
    operator = _OPERATORS.get(word) if dot else None
    return _compared(shown, column, operator or "eq", value if operator else given)


def _compared(shown: Shown, column: str, operator: Operator, text: str) -> Condition:
    if not shown.is_ordered(column):
        kind = shown.kinds[column].simpleString().upper()
        raise bad_parameter(column, f"Values of type {kind} are not compared here", "ask with POST /v1/query")
    if len(text) > _LONGEST_VALUE:
        raise bad_parameter(column, "its value is too long", f"{_LONGEST_VALUE} characters are the most")
    try:
        return Condition(column, operator, _value(shown.kinds[column], shown.converters[column], text))
    except BadValue as error:
        raise bad_parameter(column, str(error), "write column=eq.value, gt, gte, lt or lte instead of eq") from None


def _value(kind: DataType, converted: Callable[[Any], Any], text: str) -> object:
    """A value from its text, which for a number or a truth is not its JSON form."""
    match kind:
        case BooleanType():
            return converted({"true": True, "false": False}.get(text.lower(), text))
        case IntegralType():
            if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
                raise BadValue(f"expected an integer, got {shown_value(text)}")
            return converted(int(text))
        case DoubleType() | FloatType():
            try:
                number = float(text)
            except ValueError:
                raise BadValue(f"expected a number, got {shown_value(text)}") from None
            # What a FLOAT can be that is written with fewer digits.
            return float(np.float32(number)) if isinstance(kind, FloatType) else number
        case _:
            return converted(text)


def _fields(shown: Shown, text: str) -> tuple[str, ...]:
    if text.strip() in ("", "*"):
        return tuple(shown.schema.names)
    return tuple(dict.fromkeys(_column(shown, "select", one) for one in text.split(",")))


def _order(shown: Shown, text: str) -> tuple[IndexColumn, ...]:
    order: dict[str, IndexColumn] = {}
    for one in text.split(",") if text else ():
        name, dot, way = one.rpartition(".")
        known = dot and way.lower() in ("asc", "desc")
        column = _column(shown, "order", name if known else one)
        if not shown.is_ordered(column):
            raise bad_parameter("order", f"values of {column} cannot be ordered", "order by another column")
        order.setdefault(column, IndexColumn(column, bool(known) and way.lower() == "desc"))
    return tuple(order.values())


def _column(shown: Shown, parameter: str, name: str) -> str:
    found = shown.columns.get(name.strip().lower())
    if found is None:
        raise bad_parameter(
            parameter,
            f"{shown.name} has no column {name.strip()[:100]!r}",
            f"the columns are {', '.join(shown.schema.names[:50])}{_FORMS[parameter]}",
        )
    return found


def _number(given: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if not least <= number <= most:
        raise bad_parameter(
            name, f"it must be a whole number from {least} to {most}", "cursors lead on from page to page"
        )
    return number
