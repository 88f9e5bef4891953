"""PostgreSQL, followed by its logical log: a slot and a publication of the source's own, made and dropped with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl

from headrace.capture.connector import Connector, Description, Position
from headrace.capture.debezium.failures import TRUNCATED_STATE
from headrace.capture.debezium.reading import DebeziumReading, Plan, again, ask, with_snapshot
from headrace.capture.debezium.settings import OPTIONS, given, named_tables, read_url, tables_of, usual
from headrace.capture.debezium.tables import like
from headrace.errors import SourceError

_PORT = 5432
_LONGEST_NAME = 63
_JARS = "postgresql"
# What a URL may say of the connection. The driver knows others, which load classes, write files or are secrets.
_PARAMETERS = frozenset(
    {"sslmode", "sslrootcert", "sslcert", "sslkey", "connectTimeout", "socketTimeout", "tcpKeepAlive"}
)
# It goes through the log like any change, without a table and without a right to write: so a slot that nothing else
# moves is moved on, also where only tables change that nobody captures.
_HEARTBEAT = "SELECT pg_logical_emit_message(true, 'headrace', '')"


def plan(description: Description) -> Plan:
    """How Debezium reads the database of a source."""
    url = read_url(description, ("postgresql", "postgres"), _PORT)
    for name, _ in parse_qsl(url.query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise SourceError(
                "the URL of a source has a parameter that it cannot have",
                detail=f"It is {name[:60]!r}.",
                hint=f"there are {', '.join(sorted(_PARAMETERS))}",
            )
    slot = _name(description, "slot")
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **usual(description, url, _PORT, "public"),
        "database.dbname": url.path.strip("/"),
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": _name(description, "publication"),
        "publication.autocreate.mode": "filtered",
        # Whoever read it before may have been killed a moment ago: PostgreSQL takes a while to see that.
        "slot.max.retries": "20",
        "slot.retry.delay.ms": "1000",
        # Only what is durable is confirmed, and by us.
        "lsn.flush.mode": "connector",
        "heartbeat.action.query": _HEARTBEAT,
        # Snapshots of single tables need no table for signals then.
        "read.only": "true",
        **{f"database.{name}": value for name, value in parse_qsl(url.query)},
        **given(description.options),
    }
    # A slot of an earlier life, with the changes since then: what is read first is what there is now.
    ours = "slot" not in description.options
    tables = tables_of(description, "public")
    return Plan(
        _JARS,
        "io.debezium.connector.postgresql.PostgresConnectorTask",
        config,
        _database(url, config),
        [_drop_slot(slot)] if ours else [],
        lambda offset: [_slot_goes_on(slot, offset)],
        tables=tables,
        looking=_looking(tables, config),
    )


def forget(description: Description) -> None:
    """Drop the slot and the publication that were made for a source: PostgreSQL would keep its log for it for ever."""
    made = plan(description)
    slot, publication = made.config["slot.name"], made.config["publication.name"]
    statements = [] if "slot" in description.options else [_drop_slot(slot)]
    if "publication" not in description.options:
        statements.append(f'DROP PUBLICATION IF EXISTS "{publication}"')
    try:
        if statements:
            ask(description, made, statements)
    except (SourceError, TimeoutError) as error:
        detail = error.detail if isinstance(error, SourceError) else str(error)
        raise SourceError(
            f"source {description.name} is dropped, but what it made in its database is not",
            detail=f"{detail} While slot {slot} is there, PostgreSQL keeps its log for it.",
            hint=f"there: SELECT pg_drop_replication_slot('{slot}'); DROP PUBLICATION \"{publication}\"",
        ) from error


def _open(description: Description, position: Position) -> DebeziumReading:
    return DebeziumReading(description, position, plan(description))


def _snapshot(description: Description, wanted: Sequence[str], asked: str) -> Position:
    return with_snapshot(named_tables(description, "public", wanted), asked)


def _database(url: SplitResult, config: Mapping[str, str]) -> dict[str, Any]:
    host = f"[{url.hostname}]" if ":" in str(url.hostname) else url.hostname
    properties = {"user": config["database.user"], "password": config["database.password"], "connectTimeout": "10"}
    properties.update(parse_qsl(url.query))
    return {"url": f"jdbc:postgresql://{host}:{url.port or _PORT}{url.path}", "properties": properties}


def _name(description: Description, option: str) -> str:
    told = str(description.options.get(option, ""))
    # PostgreSQL takes no other characters in the name of a slot.
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in description.name.lower())
    name = told or f"headrace_{plain}"
    if len(name) > _LONGEST_NAME or not all(one.isascii() and (one.isalnum() or one == "_") for one in name):
        raise SourceError(
            f"{option} cannot be {name!r}",
            hint=f"write {option} = 'name', of small letters, digits and _, {_LONGEST_NAME} at most",
        )
    return name


def _drop_slot(slot: str) -> str:
    return f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'"


def _looking(tables: Sequence[str], config: Mapping[str, str]) -> str:
    """What tables there are, what each needs so that its rows can be changed once it is published, and if it is."""
    mends_itself = "replica.identity.autoset.values" in config or config["publication.autocreate.mode"] == "disabled"
    publication = config["publication.name"]
    return f"""
SELECT wanted.name, string_agg(DISTINCT bare.remedy, '; ') AS remedy, bool_and(bare.published)::TEXT AS published
FROM (
  SELECT c.oid, n.nspname, c.relname, n.nspname || '.' || c.relname AS name
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_')
  AND {like("n.nspname || '.' || c.relname", tables)}
) AS wanted LEFT JOIN LATERAL (
  -- Rows are in the partitions of a table that has some, and these have each their own.
  SELECT format('ALTER TABLE %I.%I REPLICA IDENTITY FULL', n.nspname, c.relname) AS remedy, EXISTS (
    SELECT FROM pg_publication_tables p WHERE p.pubname = '{publication}'
    AND (p.schemaname, p.tablename) IN ((n.nspname, c.relname), (wanted.nspname, wanted.relname))
  ) AS published
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE (c.oid = wanted.oid OR c.oid IN (SELECT relid FROM pg_partition_tree(wanted.oid) WHERE isleaf))
  AND c.relkind = 'r' AND c.relpersistence = 'p' AND NOT {mends_itself} AND NOT EXISTS (
    SELECT FROM pg_publication WHERE pubname = '{publication}' AND NOT pubupdate AND NOT pubdelete
  ) AND CASE c.relreplident WHEN 'f' THEN FALSE WHEN 'n' THEN TRUE ELSE NOT EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END
  ) END
) AS bare ON TRUE
GROUP BY wanted.name"""


def _slot_goes_on(slot: str, offset: Mapping[str, Any]) -> str:
    """A statement that fails where the log does not go on from an offset: else rows would be missing, and no more."""
    reached = max((int(offset[name]) for name in ("lsn", "lsn_proc", "lsn_commit") if offset.get(name)), default=0)
    lsn = f"{reached >> 32:X}/{reached & 0xFFFFFFFF:X}"
    return f"""
DO $$ DECLARE found record; BEGIN
  SELECT * INTO found FROM pg_replication_slots WHERE slot_name = '{slot}';
  IF found IS NULL OR found.slot_name IS NULL THEN
    RAISE EXCEPTION 'there is no replication slot {slot}' USING ERRCODE = '{TRUNCATED_STATE}';
  ELSIF found.wal_status = 'lost' THEN
    RAISE EXCEPTION 'the log of replication slot {slot} was removed' USING ERRCODE = '{TRUNCATED_STATE}';
  ELSIF found.confirmed_flush_lsn > '{lsn}'::pg_lsn THEN
    RAISE EXCEPTION 'replication slot {slot} was read up to %, and the source is at {lsn}', found.confirmed_flush_lsn
      USING ERRCODE = '{TRUNCATED_STATE}';
  END IF;
END $$"""


POSTGRES = Connector(
    "POSTGRES",
    {
        **OPTIONS,
        "slot": "The name of the replication slot; one that is named is never dropped by us.",
        "publication": "The name of the publication; likewise.",
    },
    _open,
    plan,
    brings_many=True,
    has_format=True,
    format="debezium",
    forget=forget,
    again=again,
    snapshot=_snapshot,
)
