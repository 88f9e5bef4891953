"""AUTO CDC as a query: what a flow's target holds, of the events that its stream holds.

The events of a key, in the order of their sequence, tell its row (SCD type 1) or its history (SCD type 2). As a query
over all events that is right whatever order they came in: a late one finds its place, and one that comes twice changes
nothing. The query is maintained like that of any view: an event costs the events of its key.

    events      the stream's rows with their sequence, and whether they delete
    single      of several events of a key with one sequence one: a delete, else that with the least values
    filled      NULLs replaced by what the key had before, since it was last deleted (IGNORE NULL UPDATES)
    latest      the last event of each key, unless it deletes (type 1)
    history     the events at which a row began, with that at which it ended (type 2)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sql.names import quoted

START_AT, END_AT = "__START_AT", "__END_AT"
# What is added to the columns of the stream on the way.
_SEQUENCE, _DELETE, _NUMBER = "__flow_sequence", "__flow_delete", "__flow_number"
_LIFE, _TRACKED, _RUN = "__flow_life", "__flow_tracked", "__flow_run"
_BEFORE, _GONE, _NEXT = "__flow_before", "__flow_gone", "__flow_next"
_SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class Columns:
    """Columns by name; or, where `all_but` is set, all of the stream's but these."""

    names: tuple[str, ...] = ()
    all_but: bool = True


@dataclass(frozen=True, kw_only=True)
class AutoCdc:
    """An AUTO CDC flow; its conditions and its sequence are expressions over the columns of its stream.

    Without `tracked`, a change of any column begins a new row of the history.
    """

    name: str
    target: str
    stream: str
    keys: tuple[str, ...]
    sequence: str
    deletes: str = ""
    truncates: str = ""
    ignore_null_updates: bool = False
    columns: Columns = Columns()
    scd_type: int = 1
    tracked: Columns | None = None

    @property
    def query(self) -> str:
        """What its target holds."""
        events = _single(self) if self.scd_type == 2 or self.ignore_null_updates else _events(self)
        if self.ignore_null_updates:
            events = _filled(self, events)
        return _history(self, events) if self.scd_type == 2 else _latest(self, events)


def flow_of(kept: Mapping[str, Any]) -> AutoCdc:
    """A flow from what a ledger keeps of it, as plain values."""

    def columns(one: Mapping[str, Any]) -> Columns:
        return Columns(tuple(one["names"]), one["all_but"])

    parts = dict(kept)
    parts["keys"] = tuple(kept["keys"])
    parts["columns"] = columns(kept["columns"])
    parts["tracked"] = None if kept["tracked"] is None else columns(kept["tracked"])
    return AutoCdc(**parts)


def _events(flow: AutoCdc) -> str:
    missing = f"raise_error('SEQUENCE BY of flow {_escaped(flow.name)} is NULL')"
    deletes = f"coalesce({_bracketed(flow.deletes)}, FALSE)" if flow.deletes else "FALSE"
    where = f" WHERE NOT coalesce({_bracketed(flow.truncates)}, FALSE)" if flow.truncates else ""
    return (
        f"SELECT *, coalesce({_bracketed(flow.sequence)}, {missing}) AS {_SEQUENCE}, {deletes} AS {_DELETE} "
        f"FROM {quoted(flow.stream)}{where}"
    )


def _single(flow: AutoCdc) -> str:
    window = f"(PARTITION BY {_list(flow.keys)}, {_SEQUENCE} ORDER BY {_DELETE} DESC)"
    return _first(f"SELECT *, row_number() OVER {window} AS {_NUMBER} FROM ({_events(flow)})")


def _filled(flow: AutoCdc, events: str) -> str:
    # A delete ends the life that it is part of: what it tells of the row is no part of the next one.
    deletes = f"CAST({_DELETE} AS BIGINT)"
    lives = f"SELECT *, sum({deletes}) OVER ({_in_order(flow)} {_SO_FAR}) - {deletes} AS {_LIFE} FROM ({events})"
    window = f"(PARTITION BY {_list(flow.keys)}, {_LIFE} ORDER BY {_SEQUENCE} {_SO_FAR})"
    keys = {name.lower() for name in flow.keys}
    columns = [
        quoted(name) if name.lower() in keys else f"last({quoted(name)}, TRUE) OVER {window} AS {quoted(name)}"
        for name in flow.columns.names
    ]
    return f"SELECT {', '.join(columns)}, {_SEQUENCE}, {_DELETE} FROM ({lives})"


def _latest(flow: AutoCdc, events: str) -> str:
    window = f"(PARTITION BY {_list(flow.keys)} ORDER BY {_SEQUENCE} DESC, {_DELETE} DESC)"
    last = _first(f"SELECT *, row_number() OVER {window} AS {_NUMBER} FROM ({events})")
    if not flow.truncates:
        return f"SELECT {_selected(flow.columns, (_SEQUENCE, _DELETE))} FROM ({last}) WHERE NOT {_DELETE}"
    # Joined by equal columns, so that an event which is no truncate looks at nothing else.
    emptied = (
        f"SELECT FALSE AS {_NEXT}, max({_bracketed(flow.sequence)}) AS {_GONE} FROM {quoted(flow.stream)} "
        f"WHERE coalesce({_bracketed(flow.truncates)}, FALSE)"
    )
    return (
        f"SELECT {_selected(flow.columns, (_SEQUENCE, _DELETE, _NEXT, _GONE))} FROM ({last}) "
        f"JOIN ({emptied}) ON {_DELETE} = {_NEXT} WHERE {_GONE} IS NULL OR {_SEQUENCE} > {_GONE}"
    )


def _history(flow: AutoCdc, events: str) -> str:
    key = _in_order(flow)
    followed = (
        f"SELECT *, lag({_DELETE}) OVER ({key}) AS {_GONE}, lag({_TRACKED}) OVER ({key}) AS {_BEFORE} "
        f"FROM (SELECT *, struct({_tracked(flow)}) AS {_TRACKED} FROM ({events}))"
    )
    begins = f"({_DELETE} OR coalesce({_GONE}, TRUE) OR NOT ({_TRACKED} <=> {_BEFORE}))"
    own = [_SEQUENCE, _DELETE, _TRACKED, _GONE, _BEFORE]
    if flow.tracked is None:
        rows = (
            f"SELECT *, {_SEQUENCE} AS {START_AT}, lead({_SEQUENCE}) OVER ({key}) AS {END_AT} "
            f"FROM (SELECT * FROM ({followed}) WHERE {begins})"
        )
        where = f"NOT {_DELETE}"
    else:
        # Other columns change in place: of events in a row with the same tracked values the last one counts.
        runs = f"SELECT *, sum(CAST({begins} AS BIGINT)) OVER ({key} {_SO_FAR}) AS {_RUN} FROM ({followed})"
        rows = (
            f"SELECT *, min({_SEQUENCE}) OVER (PARTITION BY {_list(flow.keys)}, {_RUN}) AS {START_AT}, "
            f"lead({_SEQUENCE}) OVER ({key}) AS {END_AT}, lead({_RUN}) OVER ({key}) AS {_NEXT} FROM ({runs})"
        )
        where = f"NOT {_DELETE} AND NOT ({_RUN} <=> {_NEXT})"
        own += [_RUN, _NEXT]
    chosen = _selected(flow.columns, own)
    chosen += "" if flow.columns.all_but else f", {START_AT}, {END_AT}"
    return f"SELECT {chosen} FROM ({rows}) WHERE {where}"


def _tracked(flow: AutoCdc) -> str:
    """The columns of which a change begins a new row of the history."""
    tracked, columns = flow.tracked or Columns(), flow.columns
    if not tracked.all_but:
        return _list(tracked.names)
    if not columns.all_but:
        left_out = {name.lower() for name in tracked.names}
        return _list([name for name in columns.names if name.lower() not in left_out])
    return _selected(Columns((*tracked.names, *columns.names)), (_SEQUENCE, _DELETE))


def _in_order(flow: AutoCdc) -> str:
    return f"PARTITION BY {_list(flow.keys)} ORDER BY {_SEQUENCE}"


def _first(numbered: str) -> str:
    return f"SELECT * EXCEPT ({_NUMBER}) FROM ({numbered}) WHERE {_NUMBER} = 1"


def _selected(columns: Columns, own: Sequence[str]) -> str:
    """The columns among those of the stream; what was added to these is left out."""
    if not columns.all_but:
        return _list(columns.names)
    names = {name.lower(): name for name in columns.names}
    return f"* EXCEPT ({_list([*names.values(), *own])})"


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _bracketed(expression: str) -> str:
    # One that ends with a comment must not swallow what follows it.
    return f"({expression}\n)"


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
