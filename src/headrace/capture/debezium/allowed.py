"""Which settings of Debezium a statement may bring: those that say how values, rows and batches are read.

All others are refused, those of a later release too: some name classes that the connector's process would load, some
have it speak to others than its database or open files, some decide where the source goes on.
"""

from __future__ import annotations

import difflib

from headrace.errors import SourceError

PREFIX = "debezium."

ALLOWED = frozenset(
    {
        # How values and columns are written.
        "bigint.unsigned.handling.mode",
        "binary.handling.mode",
        "column.exclude.list",
        "column.include.list",
        "column.propagate.source.type",
        "datatype.propagate.source.type",
        "decimal.handling.mode",
        "enable.time.adjuster",
        "field.name.adjustment.mode",
        "hstore.handling.mode",
        "include.query",
        "include.schema.comments",
        "include.unknown.datatypes",
        "interval.handling.mode",
        "message.key.columns",
        "schema.name.adjustment.mode",
        "time.precision.mode",
        "unavailable.value.placeholder",
        # Which changes come.
        "gtid.source.excludes",
        "gtid.source.filter.dml.events",
        "gtid.source.includes",
        "message.prefix.exclude.list",
        "message.prefix.include.list",
        "publication.autocreate.mode",
        "publish.via.partition.root",
        "replica.identity.autoset.values",
        "skip.messages.without.change",
        "skipped.operations",
        "slot.failover",
        "slot.stream.params",
        # How tables are read whole.
        "incremental.snapshot.allow.schema.changes",
        "incremental.snapshot.chunk.size",
        "min.row.count.to.stream.results",
        "snapshot.delay.ms",
        "snapshot.fetch.size",
        "snapshot.isolation.mode",
        "snapshot.lock.timeout.ms",
        "snapshot.locking.mode",
        "snapshot.max.threads",
        "snapshot.select.statement.overrides",
        "snapshot.tables.order.by.row.count",
        # How much is read at once, and how long is waited.
        "binlog.buffer.size",
        "connect.keep.alive",
        "connect.keep.alive.interval.ms",
        "connect.timeout.ms",
        "connection.validation.timeout.ms",
        "database.query.timeout.ms",
        "heartbeat.action.query",
        "max.batch.size",
        "max.queue.size",
        "max.queue.size.in.bytes",
        "poll.interval.ms",
        "query.fetch.size",
        "slot.max.retries",
        "slot.retry.delay.ms",
        "status.update.interval.ms",
        "streaming.delay.ms",
        "xmin.fetch.interval.ms",
        # What is done about what cannot be read.
        "event.converting.failure.handling.mode",
        "event.deserialization.failure.handling.mode",
        "event.processing.failure.handling.mode",
        "inconsistent.schema.handling.mode",
        # How the connection is kept from others; their files are named by paths.
        "database.ssl.keystore",
        "database.ssl.keystore.password",
        "database.ssl.mode",
        "database.ssl.truststore",
        "database.ssl.truststore.password",
        "database.sslcert",
        "database.sslkey",
        "database.sslmode",
        "database.sslpassword",
        "database.sslrootcert",
        "database.tcpKeepAlive",
    }
)
# Names that go on with a table, a number or a salt.
_BEGINNINGS = ("column.mask.", "column.truncate.to.", "snapshot.select.statement.overrides.")


def refuse_others(names: list[str]) -> None:
    """Refuse settings that a statement may not bring."""
    for name in names:
        if name not in ALLOWED and not name.startswith(_BEGINNINGS):
            near = difflib.get_close_matches(name, ALLOWED, n=1, cutoff=0.8)
            raise SourceError(
                f"option {PREFIX}{name} cannot be given",
                detail="Those may be that say how values, rows and batches are read. Others would load code, reach "
                "others than the database, or decide where the source goes on, which the ledger tells.",
                hint=f"did you mean {PREFIX}{near[0]}?"
                if near
                else "leave it out; the reference lists what may be given",
            )
