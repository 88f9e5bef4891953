"""CREATE SOURCE, what can be done with a source by its name, and what becomes of dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import StatementError
from headrace.sql.reader import Reader, near_miss
from headrace.sql.syntax import (
    AlterSource,
    CreateSource,
    DeadLetterAction,
    DeadLetterVerb,
    OptionValue,
    ReplaySource,
    SourceAction,
    SourceVerb,
)

SOURCE_FORM = (
    "CREATE SOURCE [IF NOT EXISTS] s [INTO t] FROM KAFKA | DELTA | FILES | ... 'where' [WITH (option = value, ...)]"
)

_MODES = ("snapshot_and_follow", "snapshot", "follow")
CONNECTORS = ("DELTA", "KAFKA", "FILES", "POSTGRES", "MYSQL", "PYTHON")


def read_create_source(reader: Reader, sql: str, line: int, column: int) -> CreateSource:
    """What stands after SOURCE; which options a connector has is for the connector to say."""
    reader.form = SOURCE_FORM
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.relation("source", new=True)
    table = reader.relation("table").name if reader.accept("INTO") else ""
    reader.expect("FROM")
    connector, location = read_place(reader, CONNECTORS, "it does not say where the source is")
    options = read_options(reader) if reader.accept("WITH") else {}
    reader.expect_end()
    return CreateSource(
        sql=sql,
        line=line,
        column=column,
        name=name.name,
        table=table,
        connector=connector,
        location=location,
        options=tuple(sorted(options.items())),
        if_not_exists=if_not_exists,
    )


_ACTION_FORMS: Mapping[SourceVerb, str] = {
    "drop": "DROP SOURCE [IF EXISTS] s",
    "pause": "PAUSE SOURCE s",
    "resume": "RESUME SOURCE s [WITH SNAPSHOT]",
    "snapshot": "SNAPSHOT SOURCE s [TABLE t, 'schema.t', ...]",
}


def read_source_action(reader: Reader, verb: SourceVerb, sql: str, line: int, column: int) -> SourceAction:
    """What stands after DROP, PAUSE, RESUME or SNAPSHOT SOURCE."""
    reader.form = _ACTION_FORMS[verb]
    if_exists = verb == "drop" and reader.accept("IF", "EXISTS")
    name = reader.relation("source").name
    with_snapshot = verb == "resume" and reader.accept("WITH", "SNAPSHOT")
    tables: list[str] = []
    if verb == "snapshot" and reader.accept("TABLE"):
        tables.append(_table_name(reader))
        while reader.accept_symbol(","):
            tables.append(_table_name(reader))
    reader.expect_end()
    return SourceAction(
        sql=sql,
        line=line,
        column=column,
        verb=verb,
        name=name,
        if_exists=if_exists,
        with_snapshot=with_snapshot,
        tables=tuple(tables),
    )


def _table_name(reader: Reader) -> str:
    """A table as its database calls it: with its schema it is no name of ours, and stands as a string."""
    token = reader.peek()
    if token is not None and token.kind == "string":
        return reader.string("the name of a table")
    return reader.relation("table").name


def read_alter_source(reader: Reader, sql: str, line: int, column: int) -> AlterSource:
    """What stands after ALTER SOURCE: options that are to be others from now on."""
    reader.form = "ALTER SOURCE s SET (option = value, ...)"
    name = reader.relation("source").name
    reader.expect("SET")
    options = read_options(reader)
    reader.expect_end()
    return AlterSource(sql=sql, line=line, column=column, name=name, options=tuple(sorted(options.items())))


def read_dead_letter_action(reader: Reader, verb: DeadLetterVerb, sql: str, line: int, column: int) -> DeadLetterAction:
    """What stands after REPLAY or DISCARD: DEAD LETTERS, and which."""
    reader.form = f"{verb.upper()} DEAD LETTERS [WHERE condition]"
    reader.expect("DEAD")
    reader.expect("LETTERS")
    return DeadLetterAction(sql=sql, line=line, column=column, verb=verb, where=read_condition(reader))


def read_replay_source(reader: Reader, sql: str, line: int, column: int) -> ReplaySource:
    """What stands after REPLAY SOURCE."""
    reader.form = "REPLAY SOURCE s [FROM 'event id or time'] [UNTIL 'event id or time'] [INTO t]"
    name = reader.relation("source").name
    where = "an event id or a time, as a string"
    since = reader.string(where) if reader.accept("FROM") else ""
    until = reader.string(where) if reader.accept("UNTIL") else ""
    into = reader.relation("table", new=True).name if reader.accept("INTO") else ""
    reader.expect_end()
    return ReplaySource(sql=sql, line=line, column=column, name=name, since=since, until=until, into=into)


def read_place(reader: Reader, kinds: Sequence[str], missing: str) -> tuple[str, str]:
    """Return the kind of a source or a sink, in lower case, and its location; any word is a kind if none are given."""
    kind = reader.keyword()
    if not kind or (kinds and kind not in kinds):
        raise reader.expected(*(kinds or ("the kind of a sink, such as KAFKA or POSTGRES",)))
    reader.index += 1
    location = reader.string("where it is, as a string")
    if not location.strip():
        reader.index -= 1
        raise reader.fail(missing)
    return kind.lower(), location


def read_condition(reader: Reader) -> str:
    """What stands after WHERE, up to the end; nothing where there is none."""
    if not reader.accept("WHERE"):
        reader.expect_end()
        return ""
    where = reader.rest()
    if not where.strip():
        raise reader.fail("WHERE has no condition")
    return where


def read_options(reader: Reader, modes: bool = True) -> dict[str, OptionValue]:
    """What stands in brackets: names, which may be strings with dots, and their values; `mode` as sources have it."""
    reader.expect_symbol("(")
    options: dict[str, OptionValue] = {}
    while True:
        position = reader.position()
        name = option_name(reader)
        if name in options:
            raise StatementError(f"option {name} is given twice", hint="keep one", line=position[0], column=position[1])
        reader.expect_symbol("=")
        options[name] = _mode(reader) if modes and name == "mode" else _option_value(reader)
        if not reader.accept_symbol(","):
            break
    if not reader.accept_symbol(")"):
        raise reader.expected("','", "')'")
    return options


def option_name(reader: Reader) -> str:
    """The name of an option, in lower case."""
    token = reader.peek()
    if token is not None and token.kind == "string":
        return reader.string("the name of an option").lower()
    return reader.column().name


def _option_value(reader: Reader) -> OptionValue:
    token = reader.peek()
    if token is not None and token.kind == "string":
        return reader.string("the value of an option")
    if reader.accept("TRUE"):
        return True
    if reader.accept("FALSE"):
        return False
    if token is None or token.kind != "number" or not token.text.isdigit():
        raise reader.expected("a string", "a whole number", "TRUE", "FALSE")
    reader.index += 1
    return int(token.text)


def _mode(reader: Reader) -> str:
    position = reader.position()
    mode = reader.string("the mode as a string").lower()
    if mode not in _MODES:
        meant = near_miss(mode, [one.upper() for one in _MODES]).lower()
        raise StatementError(
            f"there is no mode '{mode}'",
            hint=f"did you mean '{meant}'?" if meant else f"write mode = '{_MODES[0]}'",
            line=position[0],
            column=position[1],
        )
    return mode
