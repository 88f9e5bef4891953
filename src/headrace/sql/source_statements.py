"""CREATE SOURCE, and what can be done with a source by its name."""

from __future__ import annotations

from headrace.errors import StatementError
from headrace.sql.reader import Reader, near_miss
from headrace.sql.syntax import CreateSource, OptionValue, SourceAction, SourceVerb

SOURCE_FORM = "CREATE SOURCE [IF NOT EXISTS] s INTO t FROM DELTA 'path' WITH (mode = 'snapshot')"

_CONNECTORS = ("DELTA", "KAFKA", "FILES")
_OPTIONS = ("mode", "version")
_MODES = ("snapshot", "follow")


def read_create_source(reader: Reader, sql: str, line: int, column: int) -> CreateSource:
    """What stands after SOURCE; what is not offered, or not yet, is told here already."""
    reader.form = SOURCE_FORM
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.relation("source", new=True)
    reader.expect("INTO")
    table = reader.relation("table")
    reader.expect("FROM")
    connector = reader.keyword()
    if connector not in _CONNECTORS:
        raise reader.expected(*_CONNECTORS)
    if connector != "DELTA":
        raise reader.unsupported(
            f"a source from {connector} is not available yet",
            hint="read a Delta table, or bring changes in with apply()",
        )
    reader.index += 1
    location = reader.string("the path of a Delta table as a string")
    if not location.strip():
        reader.index -= 1
        raise reader.fail("the path is empty")
    options = _read_options(reader) if reader.accept("WITH") else {}
    reader.expect_end()
    _refuse_other_modes(reader, options)
    return CreateSource(
        sql=sql,
        line=line,
        column=column,
        name=name.name,
        table=table.name,
        connector="delta",
        location=location,
        options=tuple(sorted(options.items())),
        if_not_exists=if_not_exists,
    )


def read_source_action(reader: Reader, verb: SourceVerb, sql: str, line: int, column: int) -> SourceAction:
    """What stands after DROP, PAUSE or RESUME SOURCE."""
    reader.form = f"{verb.upper()} SOURCE {'[IF EXISTS] ' if verb == 'drop' else ''}s"
    if_exists = verb == "drop" and reader.accept("IF", "EXISTS")
    name = reader.relation("source").name
    reader.expect_end()
    return SourceAction(sql=sql, line=line, column=column, verb=verb, name=name, if_exists=if_exists)


def _read_options(reader: Reader) -> dict[str, OptionValue]:
    reader.expect_symbol("(")
    options: dict[str, OptionValue] = {}
    while True:
        position = reader.position()
        name = _option_name(reader)
        if name not in _OPTIONS:
            meant = near_miss(name, [option.upper() for option in _OPTIONS]).lower()
            raise StatementError(
                f"a Delta source has no option {name}",
                hint=f"did you mean {meant}?" if meant else f"its options are {', '.join(_OPTIONS)}",
                line=position[0],
                column=position[1],
            )
        if name in options:
            raise StatementError(f"option {name} is given twice", hint="keep one", line=position[0], column=position[1])
        reader.expect_symbol("=")
        options[name] = _option_value(reader, name)
        if not reader.accept_symbol(","):
            break
    if not reader.accept_symbol(")"):
        raise reader.expected("','", "')'")
    return options


def _option_name(reader: Reader) -> str:
    token = reader.peek()
    if token is not None and token.kind == "string":
        return reader.string("the name of an option").lower()
    return reader.column().name


def _option_value(reader: Reader, name: str) -> OptionValue:
    token = reader.peek()
    if name == "mode":
        position = reader.position()
        mode = reader.string("the mode as a string").lower()
        if mode not in _MODES:
            meant = near_miss(mode, [one.upper() for one in _MODES]).lower()
            raise StatementError(
                f"there is no mode '{mode}'",
                hint=f"did you mean '{meant}'?" if meant else "write mode = 'snapshot'",
                line=position[0],
                column=position[1],
            )
        return mode
    if token is None or token.kind != "number" or not token.text.isdigit():
        raise reader.expected("the version as a whole number")
    reader.index += 1
    return int(token.text)


def _refuse_other_modes(reader: Reader, options: dict[str, OptionValue]) -> None:
    """Only whole snapshots are read so far; a source that does not say so would be expected to follow its table."""
    if options.get("mode") == "snapshot":
        return
    reader.index = 0
    raise reader.unsupported(
        "a source that follows its table is not available yet",
        hint="read the table once, as it is: WITH (mode = 'snapshot')",
    )
