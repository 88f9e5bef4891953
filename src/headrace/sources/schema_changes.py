"""Changes of the columns that a source's records bring: found where they show, and made before the records need them.

A change is an epoch of its own, made by the same code as ALTER TABLE and CREATE TABLE. Whether it is to be made follows
from the columns that the table has and from those that the source was last known to have, which are committed with the
records: so one that was made just before a crash is not made again, and one that was not is.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pyspark.sql.types import StructField, StructType

from headrace.capture.connector import Arrival
from headrace.capture.described import DescribedColumn, DescribedTable
from headrace.capture.messages import Origin, RowChange, SchemaChange, Undecodable
from headrace.catalog.make import make_table, refuse_type
from headrace.definitions.adopt import adopt
from headrace.definitions.alter import alter_table
from headrace.epoch.batch import Changes
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.errors import HeadraceError, SourceError
from headrace.intake.table import TableContract
from headrace.reading.point_read import rows_where
from headrace.sources.column_changes import (
    ColumnChange,
    Columns,
    KnownColumns,
    changes_between,
    exact_steps,
    kept_steps,
    told,
)
from headrace.sources.decoders import Decoders, Describes, NotesUnknown
from headrace.sources.intake import Decoded
from headrace.sources.schema_policy import Policy
from headrace.sources.system_tables import SCHEMAS, is_kept, schemas_table
from headrace.sql.syntax import AlterTable

_log = logging.getLogger("headrace.sources")
_RENAMED = re.compile(r"\brename\s+column\s+([`\"\[]?)(\w+)[`\"\]]?\s+to\s+([`\"\[]?)(\w+)", re.IGNORECASE)
_CHANGED = re.compile(r"\bchange\s+(?:column\s+)?([`\"]?)(\w+)[`\"]?\s+([`\"]?)(\w+)", re.IGNORECASE)
DescribedBy = Literal["records", "schema topic"]


@dataclass(frozen=True)
class Need:
    """What must be done before a record can be taken, which is the one of this index."""

    index: int
    table: str
    columns: Columns
    changes: tuple[ColumnChange, ...]
    origin: Origin
    described_by: DescribedBy = "records"
    # Of a table that is not there.
    created: DescribedTable | None = None


class SchemaChanges:
    """What is known of the columns that one source's records have."""

    def __init__(self, loop: Loop, source: str, policy: Policy, decoders: Decoders) -> None:
        self._loop = loop
        self._source = source
        self._policy = policy
        self._decoders = decoders
        self._known: dict[tuple[str, DescribedBy], KnownColumns] = {}
        self._unsaved: dict[tuple[str, DescribedBy], str] = {}
        self._renamed: dict[str, dict[str, str]] = {}
        # What was not taken, and is not asked about again: columns of a table, and tables.
        self._left: set[tuple[str, str]] = set()
        # The columns that the records of a batch have, by table.
        self._unsettled: dict[str, Sequence[Columns]] = {}
        self._read = False

    def first_need(self, decoded: Decoded, table_of: Callable[[Arrival], str]) -> Need | None:
        """The first record that needs other columns than there are, or a table that is not there."""
        # A record may be unreadable just because its columns have other types now.
        letters = {id(one.arrival): one.table for one in decoded.letters if one.table}
        suspects = {table for table in {*decoded.changes, *letters.values()} if self._is_suspect(table)}
        if not (suspects or decoded.schema_changes or decoded.without_table):
            return None
        messages = {id(arrival): message for arrival, message in decoded.messages}
        for index, arrival in enumerate(decoded.arrivals):
            message = messages.get(id(arrival))
            need: Need | None = None
            if index in decoded.schema_changes:
                need = self._of_topic(index, decoded.schema_changes[index])
            elif index in decoded.without_table:
                need = self._of_missing(index, arrival, decoded.without_table[index])
            elif isinstance(message, RowChange) or id(arrival) in letters:
                table = table_of(arrival)
                if table not in suspects:
                    continue
                origin = message.origin if isinstance(message, RowChange) else self._origin(arrival)
                need = self._of_record(index, arrival, table, origin)
                if need is None and not self._is_suspect(table, self._unsettled[table]):
                    suspects.discard(table)
            if need is not None:
                return need
        return None

    @property
    def takes_truncation(self) -> bool:
        """Whether a table is emptied where its source's is: that takes rows and no columns, whatever the mode."""
        return "truncate.table" in self._policy.accepted

    def _fields(self, need: Need) -> dict[str, object]:
        """What a line of the log carries."""
        return {"source": self._source, "relation": need.table, "epoch": self._loop.core.epoch}

    def make(self, need: Need) -> None:
        """Make the changes that are needed, as the policy of the source says; or tell why the source cannot go on."""
        self._keep_table()
        if need.created is not None:
            self._create(need, need.created)
            return
        taken = [one for one in need.changes if self._policy.takes(one.tag)]
        notes = [f"{one}: not taken" for one in need.changes if one not in taken]
        if taken and self._policy.mode == "exception":
            raise self._stopped(need, told(taken))
        if taken:
            notes += self._alter(need, taken)
        for note in notes:
            _log.warning("source %s, table %s: %s", self._source, need.table, note, extra=self._fields(need))
        self._left.update((need.table, one.name.lower()) for one in need.changes)
        self._learn(need.table, need.described_by, need.columns, need.origin, "; ".join(notes))

    def unsaved(self) -> Changes:
        """The rows that keep what was learnt, for the epoch of the records that it was learnt from."""
        if not self._unsaved:
            return {}
        return {SCHEMAS: [{"insert": self._row(*key, note)} for key, note in self._unsaved.items()]}

    def saved(self) -> None:
        """What was learnt has been committed."""
        self._unsaved.clear()

    def _is_suspect(self, table: str, lists: Sequence[Columns] | None = None) -> bool:
        """Whether the records of a table may have other columns than it; asked once for all of a batch.

        `lists` are the columns that the batch is known to have, which are found out where they are not given.
        """
        decoder = self._decoders.of(table)
        if lists is None and isinstance(decoder, Describes):
            lists = self._unsettled[table] = decoder.used_columns()
        if lists:
            self._read_known()
            known = self._known.get((table, "records"))
            if any(known is None or columns != known.columns for columns in lists):
                return True
        if isinstance(decoder, NotesUnknown) and decoder.unknown.types:
            return any((table, name.lower()) not in self._left for name in decoder.unknown.types)
        return False

    def _of_record(self, index: int, arrival: Arrival, table: str, origin: Origin) -> Need | None:
        decoder = self._decoders.of(table)
        try:
            described = decoder.describe(arrival.record) if isinstance(decoder, Describes) else None
        except Undecodable:
            return None
        if described is None:
            return self._of_unknown(index, table, origin)
        known = self._known.get((table, "records"))
        columns = described.columns
        if known is not None and (known.columns == columns or known.is_after(origin)):
            return None
        return self._of_columns(index, table, "records", columns, origin)

    def _origin(self, arrival: Arrival) -> Origin:
        """Where a record comes from that cannot be read into its table."""
        try:
            message = self._decoders("")(arrival.record)
        except Undecodable:
            return Origin()
        return message.origin if isinstance(message, RowChange) else Origin()

    def _of_unknown(self, index: int, table: str, origin: Origin) -> Need | None:
        """Columns that nothing describes are added as what their first value seems to be."""
        decoder = self._decoders.of(table)
        if not isinstance(decoder, NotesUnknown):
            return None
        new = [
            ColumnChange("add.column", name, kind)
            for name, kind in decoder.unknown.types.items()
            if (table, name.lower()) not in self._left
        ]
        known = self._known.get((table, "records"))
        return Need(index, table, () if known is None else known.columns, tuple(new), origin) if new else None

    def _of_topic(self, index: int, message: SchemaChange) -> Need | None:
        """The first table of a record of the schema change topic whose columns are other ones now."""
        self._read_known()
        for described in message.tables:
            table = described.name.rpartition(".")[2].lower()
            if table not in self._loop.core.catalog:
                continue
            renamed = self._renamed.setdefault(table, {})
            for pattern in (_RENAMED, _CHANGED):
                renamed.update({old.lower(): new.lower() for _, old, _, new in pattern.findall(message.ddl)})
            # Records that have a schema say themselves what their columns are.
            if described.what == "went" or not described.columns or (table, "records") in self._known:
                continue
            known = self._known.get((table, "schema topic"))
            if known is not None and (known.columns == described.columns or known.is_after(message.origin)):
                continue
            need = self._of_columns(index, table, "schema topic", described.columns, message.origin)
            if need is not None:
                return need
        return None

    def _of_columns(
        self, index: int, table: str, described_by: DescribedBy, columns: Columns, origin: Origin
    ) -> Need | None:
        contract = self._loop.core.catalog.table(table).contract
        known = self._known.get((table, described_by))
        renamed = self._renamed.get(table, {})
        changes = changes_between(contract, None if known is None else known.columns, columns, renamed)
        if not changes:
            self._learn(table, described_by, columns, origin, "")
            return None
        return Need(index, table, columns, tuple(changes), origin, described_by)

    def _of_missing(self, index: int, arrival: Arrival, table: str) -> Need | None:
        decoder = self._decoders.of("")
        if (table, "") in self._left or not self._policy.takes("create.table") or not isinstance(decoder, Describes):
            return None
        try:
            described = decoder.describe(arrival.record)
        except Undecodable:
            return None
        if described is None or not described.columns:
            return None
        return Need(index, table, described.columns, (), Origin(), created=described)

    def _create(self, need: Need, described: DescribedTable) -> None:
        """Make the table that records are for, with the columns of their schema and the key of theirs."""
        if self._policy.mode == "exception":
            raise self._stopped(need, "there is no such table")
        key = {name.lower() for name in described.key}
        fields = [StructField(one.name, one.data_type, one.name.lower() not in key) for one in described.columns]
        names = tuple(field.name for field in fields if field.name.lower() in key)
        contract = TableContract(need.table, StructType(fields), names)

        def make() -> None:
            if need.table not in self._loop.core.catalog:
                for field in fields:
                    refuse_type(f"column {field.name}", field.dataType)
                adopt(self._loop.core, [make_table(contract)])

        try:
            self._loop.define(make)
        except HeadraceError as error:
            if error.transient or self._policy.mode == "evolve":
                raise
            self._left.add((need.table, ""))
            _log.warning(
                "source %s: table %s was not made: %s", self._source, need.table, error, extra=self._fields(need)
            )

    def _alter(self, need: Need, changes: Sequence[ColumnChange]) -> list[str]:
        """Have the table follow the changes, all in one epoch; what was not taken, in words."""
        contract = self._loop.core.catalog.table(need.table).contract
        steps = kept_steps if self._policy.mode == "lenient" else exact_steps
        try:
            self._run([one for change in changes for one in steps(contract, change)])
        except HeadraceError as error:
            if error.transient:
                raise
            if self._policy.mode == "evolve":
                raise self._stopped(need, told(changes), error) from error
        else:
            return []
        # Each by itself then, so that one that cannot be made holds up no other.
        return [note for change in changes if (note := self._alter_one(need, change))]

    def _alter_one(self, need: Need, change: ColumnChange) -> str:
        refused = ""
        for steps in (exact_steps, kept_steps) if self._policy.mode == "try_evolve" else (kept_steps,):
            try:
                self._run(steps(self._loop.core.catalog.table(need.table).contract, change))
            except HeadraceError as error:
                if error.transient:
                    raise
                refused = f"{change}: not made, for {error.message}. {error.detail}".rstrip()
            else:
                return f"{refused}; the table keeps what it had" if refused else ""
        return refused

    def _run(self, statements: Sequence[AlterTable]) -> None:
        if statements:
            self._loop.define(lambda: alter_table(self._loop.core, *statements))

    def _stopped(self, need: Need, what: str, refused: HeadraceError | None = None) -> SourceError:
        """Why the source cannot go on; nothing of the change is made."""
        why = f" {refused.message}. {refused.detail}".rstrip() if refused is not None else ""
        return SourceError(
            f"source {self._source} has met a change of its table {need.table}: {what}",
            detail=f"Nothing of it is made, and nothing after it is read.{why}",
            hint=(f"{refused.hint}, then RESUME SOURCE {self._source}" if refused is not None and refused.hint else "")
            or f"change the table by hand, or ALTER SOURCE {self._source} SET (schema_change = 'lenient')",
        )

    def _learn(self, table: str, described_by: DescribedBy, columns: Columns, origin: Origin, note: str) -> None:
        if columns:
            self._known[table, described_by] = KnownColumns(columns, origin.position.order, origin.committed_at)
            self._unsaved[table, described_by] = note

    def _read_known(self) -> None:
        """What the last committed epoch keeps of this source's columns."""
        if self._read:
            return
        self._read = True
        self._keep_table()
        snapshot, schema = self._loop.core.relations()[SCHEMAS]
        for row in rows_where(snapshot, schema, {"source": self._source}).to_pylist():
            self._known[row["table"], row["described_by"]] = _known_of(row)

    def _keep_table(self) -> None:
        core, table = self._loop.core, schemas_table()
        if not is_kept(core.catalog, table):
            self._loop.define(lambda: None if is_kept(core.catalog, table) else adopt(core, [table]))

    def _row(self, table: str, described_by: DescribedBy, note: str) -> dict[str, Any]:
        known = self._known[table, described_by]
        fields = [StructField(one.name, one.data_type, one.nullable) for one in known.columns]
        return {
            "source": self._source,
            "table": table,
            "described_by": described_by,
            "columns": json.dumps(StructType(fields).jsonValue()["fields"]),
            "note": note or None,
            "source_at": known.at,
            "position": json.dumps(known.order),
            "changed_at": datetime.now(UTC),
        }


def forgotten(core: Core, source: str) -> list[dict[str, Any]]:
    """The changes that forget what a source's columns were."""
    if SCHEMAS not in core.catalog:
        return []
    snapshot, schema = core.relations()[SCHEMAS]
    names = ("source", "table", "described_by")
    return [
        {"delete": {one: row[one] for one in names}}
        for row in rows_where(snapshot, schema, {"source": source}).to_pylist()
    ]


def _known_of(row: Mapping[str, Any]) -> KnownColumns:
    fields = StructType.fromJson({"type": "struct", "fields": json.loads(row["columns"])}).fields
    columns = tuple(DescribedColumn(one.name, one.dataType, one.nullable) for one in fields)
    return KnownColumns(columns, tuple(json.loads(row["position"])), row["source_at"])
