"""CREATE CHANGEFEED, what can be done with a feed by its name, and what becomes of parked events."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.sql.reader import Reader
from headrace.sql.source_statements import option_name, read_condition, read_options, read_place
from headrace.sql.syntax import AlterFeed, CreateFeed, DeadLetterVerb, FeedAction, FeedVerb, ParkedAction

FEED_FORM = (
    "CREATE CHANGEFEED [IF NOT EXISTS] f FOR TABLE x INTO KAFKA | WEBHOOK | POSTGRES | REDIS | FILES | ... 'where' "
    "[WITH (option = value, ...)]"
)
_ACTION_FORMS: Mapping[FeedVerb, str] = {
    "drop": "DROP CHANGEFEED [IF EXISTS] f",
    "pause": "PAUSE CHANGEFEED f",
    "resume": "RESUME CHANGEFEED f",
    "resync": "RESYNC CHANGEFEED f",
}


def read_create_feed(reader: Reader, sql: str, line: int, column: int) -> CreateFeed:
    """Read what stands after CHANGEFEED; which sinks there are, and their options, is for the sinks to say."""
    reader.form = FEED_FORM
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    if reader.at("FOR", "TABLE"):
        raise reader.fail("a changefeed has a name, by which it is paused and dropped", hint=f"write {FEED_FORM}")
    name = reader.relation("changefeed", new=True).name
    reader.expect("FOR")
    # The contract says TABLE of views too; who writes VIEW means the same.
    if not (reader.accept("TABLE") or reader.accept("MATERIALIZED", "VIEW")):
        reader.accept("VIEW")
    table = reader.relation("table or view").name
    reader.expect("INTO")
    sink, location = read_place(reader, (), "it does not say where the events go")
    options = read_options(reader, modes=False) if reader.accept("WITH") else {}
    reader.expect_end()
    return CreateFeed(
        sql=sql,
        line=line,
        column=column,
        name=name,
        table=table,
        sink=sink,
        location=location,
        options=tuple(sorted(options.items())),
        if_not_exists=if_not_exists,
    )


def read_feed_action(reader: Reader, verb: FeedVerb, sql: str, line: int, column: int) -> FeedAction:
    """What stands after DROP, PAUSE, RESUME or RESYNC CHANGEFEED."""
    reader.form = _ACTION_FORMS[verb]
    if_exists = verb == "drop" and reader.accept("IF", "EXISTS")
    name = reader.relation("changefeed").name
    reader.expect_end()
    return FeedAction(sql=sql, line=line, column=column, verb=verb, name=name, if_exists=if_exists)


def read_alter_feed(reader: Reader, sql: str, line: int, column: int) -> AlterFeed:
    """What stands after ALTER CHANGEFEED: options that are to be others, or not given, from now on."""
    reader.form = "ALTER CHANGEFEED f SET (option = value, ...) | ALTER CHANGEFEED f UNSET (option, ...)"
    name = reader.relation("changefeed").name
    unset: list[str] = []
    options = {}
    if reader.accept("UNSET"):
        reader.expect_symbol("(")
        unset.append(option_name(reader))
        while reader.accept_symbol(","):
            unset.append(option_name(reader))
        reader.expect_symbol(")")
    else:
        reader.expect("SET")
        options = read_options(reader, modes=False)
    reader.expect_end()
    given = tuple(sorted(options.items()))
    return AlterFeed(sql=sql, line=line, column=column, name=name, options=given, unset=tuple(unset))


def read_parked_action(reader: Reader, verb: DeadLetterVerb, sql: str, line: int, column: int) -> ParkedAction:
    """What stands after REPLAY or DISCARD PARKED: EVENTS, and which."""
    reader.form = f"{verb.upper()} PARKED EVENTS [WHERE condition]"
    reader.expect("EVENTS")
    return ParkedAction(sql=sql, line=line, column=column, verb=verb, where=read_condition(reader))
