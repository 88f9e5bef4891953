"""CREATE FLOW ... AS AUTO CDC, or APPLY CHANGES, and DROP FLOW. A flow defines its target: a view with its query."""

from __future__ import annotations

from headrace.errors import StatementError
from headrace.sql.flows import END_AT, START_AT, AutoCdc, Columns
from headrace.sql.reader import Reader
from headrace.sql.syntax import CreateView, DropFlow

FLOW_FORM = (
    "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (id) [IGNORE NULL UPDATES] [APPLY AS DELETE WHEN condition] "
    "[APPLY AS TRUNCATE WHEN condition] SEQUENCE BY c [COLUMNS (a, b) | * EXCEPT (c)] [STORED AS SCD TYPE 1 | 2] "
    "[TRACK HISTORY ON (a, b) | * EXCEPT (c)]"
)
_CLAUSES = (
    ("IGNORE", "NULL", "UPDATES"),
    ("APPLY", "AS", "DELETE", "WHEN"),
    ("APPLY", "AS", "TRUNCATE", "WHEN"),
    ("SEQUENCE", "BY"),
    ("COLUMNS",),
    ("STORED", "AS", "SCD", "TYPE"),
    ("TRACK", "HISTORY", "ON"),
)
_IGNORE, _DELETES, _TRUNCATES, _SEQUENCE, _COLUMNS, _STORED, _TRACK = _CLAUSES


def read_create_flow(reader: Reader, sql: str, line: int, column: int) -> CreateView:
    """What stands after FLOW, as the view that is its target."""
    reader.form = FLOW_FORM
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.relation("flow", new=True).name
    # The older name of the same.
    if not reader.accept("AS", "APPLY", "CHANGES", "INTO"):
        reader.expect("AS", "AUTO", "CDC", "INTO")
    target = reader.relation("table", new=True)
    reader.expect("FROM")
    stream = _read_stream(reader)
    reader.expect("KEYS")
    keys = tuple(one.spelled for one in reader.columns())
    given: dict[tuple[str, ...], object] = {}
    while not reader.at_end:
        clause = next((one for one in _CLAUSES if reader.at(*one)), None)
        if clause is None or clause in given:
            raise reader.expected(*(" ".join(one) for one in _CLAUSES if one not in given), "the end of the statement")
        reader.index += len(clause)
        given[clause] = _read_clause(reader, clause)
    if _SEQUENCE not in given:
        raise reader.expected("SEQUENCE BY")
    flow = AutoCdc(
        name=name,
        target=target.name,
        stream=stream,
        keys=keys,
        sequence=str(given[_SEQUENCE]),
        deletes=str(given.get(_DELETES, "")),
        truncates=str(given.get(_TRUNCATES, "")),
        ignore_null_updates=_IGNORE in given,
        columns=_columns(given.get(_COLUMNS)) or Columns(),
        scd_type=2 if given.get(_STORED) == 2 else 1,
        tracked=_columns(given.get(_TRACK)),
    )
    _refuse(flow, line, column)
    return CreateView(
        sql=sql,
        line=line,
        column=column,
        name=target.name,
        spelled=target.spelled,
        query=flow.query,
        query_line=line,
        query_column=column,
        materialized=True,
        or_replace=False,
        if_not_exists=if_not_exists,
        policy="auto",
        columns=(),
        columns_spelled=(),
        comment=None,
        flow=flow,
    )


def read_drop_flow(reader: Reader, sql: str, line: int, column: int) -> DropFlow:
    """What stands after DROP FLOW."""
    reader.form = "DROP FLOW [IF EXISTS] f [RESTRICT | CASCADE]"
    if_exists = reader.accept("IF", "EXISTS")
    name = reader.relation("flow").name
    cascade = reader.accept_cascade()
    reader.expect_end()
    return DropFlow(sql=sql, line=line, column=column, name=name, if_exists=if_exists, cascade=cascade)


def _read_stream(reader: Reader) -> str:
    if not (reader.at("STREAM") and (reader.at_symbol("(", 1) or reader.keyword(1) != "KEYS")):
        return reader.relation("table or view").name
    reader.index += 1
    bracket = reader.accept_symbol("(")
    stream = reader.relation("table or view").name
    if bracket:
        reader.expect_symbol(")")
    return stream


def _read_clause(reader: Reader, clause: tuple[str, ...]) -> object:
    if clause == _IGNORE:
        return True
    if clause in (_COLUMNS, _TRACK):
        return _read_columns(reader)
    if clause == _STORED:
        token = reader.peek()
        if token is None or token.text not in ("1", "2"):
            raise reader.expected("1", "2")
        reader.index += 1
        return int(token.text)
    begin = reader.index
    while not reader.at_end and not any(reader.at(*one) for one in _CLAUSES):
        if reader.at_symbol("("):
            reader.skip_brackets()
        else:
            reader.index += 1
    if begin == reader.index:
        raise reader.expected("an expression")
    return reader.text_since(begin)


def _read_columns(reader: Reader) -> Columns:
    if reader.accept_symbol("*"):
        reader.expect("EXCEPT")
        return Columns(tuple(one.spelled for one in reader.columns()))
    if reader.at_symbol("("):
        return Columns(tuple(one.spelled for one in reader.columns()), all_but=False)
    names = [reader.column().spelled]
    while reader.accept_symbol(","):
        names.append(reader.column().spelled)
    return Columns(tuple(names), all_but=False)


def _columns(read: object) -> Columns | None:
    return read if isinstance(read, Columns) else None


def _refuse(flow: AutoCdc, line: int, column: int) -> None:
    """What no stream could make right."""
    keys, named = _lower(flow.keys), _lower(flow.columns.names)
    kept = [one for one in flow.keys if (one.lower() in named) == flow.columns.all_but]
    fault = hint = ""
    if kept:
        fault = f"key {kept[0]} is not among the columns of {flow.target}"
        hint = "a row is known by its key: name it in COLUMNS, or do not except it"
    elif flow.scd_type == 2 and flow.truncates:
        fault = "APPLY AS TRUNCATE is for SCD type 1"
        hint = "a history has no end of all rows: leave it out, or write STORED AS SCD TYPE 1"
    elif flow.scd_type == 1 and flow.tracked is not None:
        fault, hint = "TRACK HISTORY is for SCD type 2", "leave it out, or write STORED AS SCD TYPE 2"
    elif flow.ignore_null_updates and flow.columns.all_but:
        fault = "IGNORE NULL UPDATES needs the columns of the target by name"
        hint = "name them: COLUMNS (id, ...)"
    elif flow.tracked is not None and not flow.columns.all_but and not _lower(flow.tracked.names) <= named:
        fault = "TRACK HISTORY names a column that the target does not have"
        hint = "name it in COLUMNS too"
    elif flow.tracked is not None and not flow.tracked.all_but and _lower(flow.tracked.names) <= keys:
        fault = "the key of a row never changes: TRACK HISTORY needs another column"
        hint = "name the columns whose changes begin a new row of the history"
    elif flow.scd_type == 2 and not flow.columns.all_but and named & _lower((START_AT, END_AT)):
        fault, hint = f"{START_AT} and {END_AT} are made by the flow", "give the stream's columns other names"
    if fault:
        raise StatementError(fault, hint=hint, line=line, column=column)


def _lower(names: tuple[str, ...]) -> set[str]:
    return {name.lower() for name in names}
