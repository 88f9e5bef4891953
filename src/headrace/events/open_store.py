"""An open event store, as routes, commands and followers work on it: calls, pages, and how a state was reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.epoch.calls import Call
from headrace.epoch.digest import digest_of
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.events.append import append_call, carried_out, rows_by
from headrace.events.define import types_of
from headrace.events.erasure import open_texts, unsealed
from headrace.events.event import SEALED, Append, Keyed, append_content, keyed, read_append, read_appends, with_ids
from headrace.events.followers import Follower
from headrace.events.outbox import PREFIX, OutboxFollower, append_of
from headrace.events.parts import StoreParts
from headrace.events.reading import Wanted, find_events, types_there
from headrace.events.schemas import refuse_unfit
from headrace.events.snapshots import is_due
from headrace.events.states import Reached, as_event, moment, reach, shown
from headrace.events.tables import beside, store_table
from headrace.intake.changes import refuse_no_changes


class OpenStore:
    """A store of an open home, behind the verbs of EventStore."""

    def __init__(self, loop: Loop, name: str, parts: StoreParts) -> None:
        self.loop = loop
        self.parts = parts
        self.name = store_table(loop.core.catalog, name).name

    def writable(self) -> Table:
        """Its table, where events can be appended now."""
        core = self.loop.core
        core.refuse_closed()
        core.refuse_read_only()
        core.refuse_broken()
        return store_table(core.catalog, self.name)

    def call(
        self,
        aggregate_type: object,
        aggregate_id: object,
        events: object,
        expected: object = "any",
        correlation_id: str | None = None,
        causation_id: str | None = None,
        changes: Mapping[str, Sequence[object]] | None = None,
        key: str | None = None,
    ) -> Call:
        """The call of an append, checked and not yet in line; a key gives ids to events that have none."""
        table = self.writable()
        if changes is not None:
            refuse_no_changes(changes)
            for name in changes:
                self.loop.core.catalog.open_table(name)
        marks = {"correlation_id": correlation_id, "causation_id": causation_id}
        given = {name: value for name, value in marks.items() if value is not None}
        most = self.loop.core.settings.event_bytes
        append = read_append(self.name, aggregate_type, aggregate_id, events, expected, most, given)
        if key is None:
            return self._checked_call(table, [append], changes)
        space = "append", self.name, append.aggregate_type, append.aggregate_id
        content = append_content(append) + ("" if changes is None else digest_of(changes))
        return self._checked_call(table, [append], changes, None, keyed(key, space, content))

    def call_many(
        self, appends: Sequence[Mapping[str, Any]], always: Mapping[str, Sequence[object]] | None = None
    ) -> Call:
        """The call of several appends, with changes that are made though all of their events are known."""
        table = self.writable()
        read = read_appends(self.name, appends, self.loop.core.settings.event_bytes)
        return self._checked_call(table, read, None, always)

    def call_of_rows(self, rows: Sequence[Mapping[str, Any]], kept: Mapping[str, Sequence[object]]) -> Call:
        """The call of what the rows of an outbox say, with what is kept of them."""
        return self.call_many([append_of(self.name, row) for row in rows], kept)

    def _checked_call(
        self,
        table: Table,
        appends: Sequence[Append],
        changes: Mapping[str, Sequence[object]] | None,
        always: Mapping[str, Sequence[object]] | None = None,
        keyed: Keyed | None = None,
    ) -> Call:
        types = types_of(self.loop.core.newest_of_names([beside(self.name, "types")]), self.name)
        options = cast("Mapping[str, Any]", table.events)
        for append in appends:
            refuse_unfit(self.name, types, not options["unknown_types"], append)
        if keyed is not None:
            appends = [with_ids(one, keyed.key) for one in appends]
        return append_call(self.name, appends, changes, keys=self.parts.keys, always=always, keyed=keyed)

    def commit(self, call: Call) -> Receipt:
        """Bring a call in line and wait until it is committed, or raise why it is not."""
        with self.loop.leaving(call):
            return self.loop.receipt_of(self.loop.enter(call))

    def carried_out(self, asked: Keyed) -> Receipt | None:
        """What became of a command that was carried out under its key, None if none was; refused for another one."""
        return carried_out(self.loop.core, self.name, asked)

    def decide(
        self,
        aggregate_type: str,
        aggregate_id: str,
        events: Sequence[Mapping[str, Any]],
        reached: Reached,
        asked: Keyed | None,
    ) -> Receipt:
        """Append what a command decided for the version that it saw; with a key also that it decided nothing."""
        if events:
            table, most = self.writable(), self.loop.core.settings.event_bytes
            append = read_append(self.name, aggregate_type, aggregate_id, events, reached.version, most)
            call = self._checked_call(table, [append], None, keyed=asked)
        elif asked is None:
            return Receipt(self.loop.core.epoch, version=reached.version, position=reached.position)
        else:
            self.writable()
            told = {"version": reached.version, "position": reached.position}
            call = Call({}, asked.key, asked.digest, quiet=True, told=told)
        receipt = self.commit(call)
        self.appended(aggregate_type, aggregate_id, len(events), receipt)
        return receipt

    def appended(self, aggregate_type: str, aggregate_id: str, count: int, receipt: Receipt) -> None:
        """Take a snapshot in the background where these events make one due; whatever there is, nothing is raised."""
        every = int(self._option("snapshot_events"))
        version = receipt.version or 0
        if every > 0 and version // every > (version - count) // every:
            self.parts.snapshots.take_later(self.loop, self.name, aggregate_type, aggregate_id, version)

    def reached(
        self, aggregate_type: str, aggregate_id: str, as_of: int | datetime | str | None = None, snapshots: bool = True
    ) -> Reached:
        """A state with its version and position; encrypted values of merged states are still encrypted."""
        self.loop.core.refuse_closed()
        when = moment(as_of)
        names = [self.name, beside(self.name, "aggregates"), beside(self.name, "snapshots")]
        found, code, keys = self.loop.core.newest_of_names(names), self.parts.code, self.parts.keys
        reached = reach(found, self.name, code, keys, aggregate_type, str(aggregate_id), when, snapshots)
        if when is None and snapshots and self._is_due(reached):
            self.parts.snapshots.take_later(self.loop, self.name, aggregate_type, str(aggregate_id), reached.version)
        return reached

    def shown_state(
        self, aggregate_type: str, aggregate_id: str, as_of: int | datetime | str | None = None, snapshots: bool = True
    ) -> tuple[dict[str, Any] | None, Reached]:
        """A state as a caller sees it, and how it was reached."""
        reached = self.reached(aggregate_type, aggregate_id, as_of, snapshots)
        return shown(reached, self.parts.code, self.parts.keys, aggregate_type), reached

    def find(self, wanted: Wanted) -> tuple[list[dict[str, Any]], bool]:
        """The first events that are wanted, and whether others follow."""
        core, aggregates = self.loop.core, beside(self.name, "aggregates")
        core.refuse_closed()
        found = core.newest_of_names([self.name, aggregates])
        named = (wanted.aggregate_type, wanted.aggregate_id)
        heads = [] if None in named else rows_by(found[aggregates][0], (0, 1), [named])
        rows, more = find_events(*found[self.name], wanted, int(heads[0][2]) if heads else 0)
        return self.opened(rows).to_pylist(maps_as_pydicts="strict"), more

    def aggregate_types(self) -> list[str]:
        """The types of its aggregates, for who named another."""
        name = beside(self.name, "aggregates")
        return types_there(self.loop.core.newest_of_names([name])[name][0])

    def opened(self, rows: pa.Table) -> pa.Table:
        """Events with their encrypted values as they were given, NULL where their key was forgotten."""
        if self._option("data") == "json":
            column = rows.column("event_data")
            if any(SEALED in one for one in column.to_pylist()):
                texts = open_texts(self.parts.keys, column.to_pylist())
                at = rows.column_names.index("event_data")
                rows = rows.set_column(at, "event_data", pa.array(texts, column.type))
        return rows

    def opened_event(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """An event as functions are given it: its encrypted values opened, its data of the newest version."""
        event = as_event(row)
        if SEALED in str(event["event_data"]):
            event["event_data"] = unsealed(self.parts.keys, event["event_data"])
        self.parts.code.upcast(event)
        return event

    def followed_outbox(self, relation: str) -> Follower:
        """Whoever follows an outbox, whether or not it is one by now; made if there is none."""
        for one in self.parts.followers:
            if one.name == f"{PREFIX}{relation}" and not one.is_stopped:
                return one
        made = OutboxFollower(self.loop, self.name, relation, self.call_of_rows)
        made.begin()
        self.parts.add(made)
        made.start()
        return made

    def _is_due(self, reached: Reached) -> bool:
        if reached.read == 0 or self.loop.core.read_only:
            return False
        return is_due(reached, int(self._option("snapshot_events")), int(self._option("snapshot_seconds")))

    def _option(self, name: str) -> Any:
        # A store may be dropped right after an append to it, which is acknowledged all the same.
        found = self.loop.core.catalog.relations.get(self.name)
        return (found.events or {}).get(name, 0) if isinstance(found, Table) else 0
