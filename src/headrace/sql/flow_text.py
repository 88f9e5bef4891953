"""CREATE FLOW ... AS AUTO CDC as text, from arguments under the names that Spark's create_auto_cdc_flow gives them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import StatementError
from headrace.sql.names import quoted

# A list of columns, or one of all but some.
Chosen = tuple[Sequence[str] | None, Sequence[str] | None]


def auto_cdc_text(
    flow: tuple[str | None, str, str],
    keys: Sequence[str],
    sequence_by: str,
    columns: Chosen,
    history: Chosen,
    *,
    deletes: str | None,
    truncates: str | None,
    scd_type: int | str,
    ignores_nulls: bool,
    once: bool,
) -> str:
    """The statement of a flow: its name, target and source; without a name, it is called as its target."""
    name, target, source = flow
    for what, given in (("target", target), ("source", source), ("name", name or target)):
        if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise StatementError(f"{what} is a name as text, not {given!r}")
    if once:
        raise StatementError(
            "a flow always follows its source: once=True is not offered", hint="INSERT INTO a table what is to be once"
        )
    if str(scd_type) not in ("1", "2"):
        raise StatementError(f"there is no SCD type {scd_type!r}", hint="write stored_as_scd_type=1, or 2")
    parts = [
        f"CREATE FLOW {quoted(name or target)} AS AUTO CDC INTO {quoted(target)} FROM STREAM({quoted(source)})",
        f"KEYS {_columns('keys', keys)}",
        "IGNORE NULL UPDATES" if ignores_nulls else "",
        _expression("APPLY AS DELETE WHEN", "apply_as_deletes", deletes),
        _expression("APPLY AS TRUNCATE WHEN", "apply_as_truncates", truncates),
        _expression("SEQUENCE BY", "sequence_by", sequence_by),
        _chosen("COLUMNS", "column_list", *columns),
        f"STORED AS SCD TYPE {scd_type}",
        _chosen("TRACK HISTORY ON", "track_history_column_list", *history),
    ]
    return " ".join(part for part in parts if part)


def _chosen(clause: str, what: str, names: Sequence[str] | None, all_but: Sequence[str] | None) -> str:
    if names is not None and all_but is not None:
        raise StatementError(f"{what} and its except list exclude each other", hint="give one of the two")
    if names is not None:
        return f"{clause} {_columns(what, names)}"
    return "" if all_but is None else f"{clause} * EXCEPT {_columns(what, all_but)}"


def _columns(what: str, names: Sequence[str]) -> str:
    if isinstance(names, str) or not names or not all(isinstance(one, str) for one in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StatementError(f"{what} is a list of names of columns", hint=f'write {what}=["id"]')
    return f"({', '.join(map(quoted, names))})"


def _expression(clause: str, what: str, given: str | None) -> str:
    if given is None and what != "sequence_by":
        return ""
    if not isinstance(given, str):
        raise StatementError(f"{what} is an expression of SQL as text, not {given!r}", hint=f'write {what}="..."')
    # In brackets, no word of it can be taken for the clause that follows.
    return f"{clause} ({given}\n)"
