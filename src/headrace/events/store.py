"""An event store as programs use it: append, read, state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.epoch.calls import Call
from headrace.epoch.digest import digest_of
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import HeadraceError
from headrace.events.append import append_call, carried_out, rows_by
from headrace.events.audit import create_audit_log
from headrace.events.commands import Command, CommandResult, run_command
from headrace.events.define import register_type, types_of
from headrace.events.erasure import names_of_aggregate, names_of_subject, open_texts, unsealed
from headrace.events.event import SEALED, Append, Keyed, append_content, keyed, read_append, read_appends, with_ids
from headrace.events.fingerprints import fingerprint
from headrace.events.folded import PREFIX as PROJECTION
from headrace.events.folded import FoldedProjection, withheld
from headrace.events.followers import Follower
from headrace.events.outbox import PREFIX, OutboxFollower, append_of, refuse_no_outbox
from headrace.events.parts import StoreParts
from headrace.events.reading import Wanted, find_events, read_events, types_there
from headrace.events.schemas import refuse_unfit
from headrace.events.snapshots import drop_snapshots, is_due
from headrace.events.states import Fold, Reached, Upcast, as_event, moment, reach, shown
from headrace.events.subscriptions import (
    forget_subscription,
    parked_events,
    replay_outbox,
    replay_parked,
    subscription,
)
from headrace.events.tables import beside, store_table
from headrace.intake.changes import refuse_no_changes

AnyFold = TypeVar("AnyFold", bound=Fold)
AnyUpcast = TypeVar("AnyUpcast", bound=Upcast)


class EventStore:
    """An event store of an open home: an append-only table whose rows have a version in their aggregate and a position
    in the store, both without holes."""

    def __init__(self, loop: Loop, name: str, parts: StoreParts) -> None:
        self._loop = loop
        self._parts = parts
        self.name = store_table(loop.core.catalog, name).name

    def __repr__(self) -> str:
        return f"<EventStore {self.name}>"

    def append(
        self,
        aggregate_type: str,
        aggregate_id: str,
        events: Sequence[Mapping[str, Any]],
        expected: int | str = "any",
        *,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        changes: Mapping[str, Sequence[object]] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Append events of one aggregate, all or none, as part of one epoch, durable when this returns.

        An event is {"event_type": ..., "event_data": {...}, "metadata": {...}, "event_id": ..., "schema_version": 1},
        of which only the type is needed. `expected` is "any", "none" or the version that the aggregate must have. The
        same event ids again change nothing and have the version of the first time. `changes` are of ordinary tables, as
        `apply` takes them, in the same epoch. The same key again, for the same aggregate, has the receipt of the first
        time; with other events it is refused.

            store.append("Customer", "c1", [{"event_type": "CustomerCreated", "event_data": {"name": "Ada"}}], "none")

        Raises VersionConflict, whose .version is the one that the aggregate has, EventsRejected or KeyReused.
        """
        call = self.call(aggregate_type, aggregate_id, events, expected, correlation_id, causation_id, changes, key)
        with self._loop.leaving(call):
            receipt = self._loop.receipt_of(self._loop.enter(call))
        self.appended(str(aggregate_type), str(aggregate_id), len(events), receipt)
        return receipt

    def append_many(self, appends: Sequence[Mapping[str, Any]]) -> Receipt:
        """Append events of several aggregates, all or none: each {"aggregate_type", "aggregate_id", "events",
        "expected"}. The receipt has the version and the position of the last event."""
        call = self.call_many(appends)
        with self._loop.leaving(call):
            return self._loop.receipt_of(self._loop.enter(call))

    def run(self, command: Command, /, *, key: str | None = None, **arguments: Any) -> CommandResult:
        """Carry a command out; its result carries the epoch at which every view shows its events.

        Raises CommandRefused, and then nothing has changed. The same key again has the result of the first time.
        """
        return run_command(self, command, arguments, key)

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
        table = self._open()
        if changes is not None:
            refuse_no_changes(changes)
            for name in changes:
                self._loop.core.catalog.open_table(name)
        marks = {"correlation_id": correlation_id, "causation_id": causation_id}
        given = {name: value for name, value in marks.items() if value is not None}
        most = self._loop.core.settings.event_bytes
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
        table = self._open()
        read = read_appends(self.name, appends, self._loop.core.settings.event_bytes)
        return self._checked_call(table, read, None, always)

    def carried_out(self, asked: Keyed) -> Receipt | None:
        """What became of a command that was carried out under its key, None if none was; refused for another one."""
        return carried_out(self._loop.core, self.name, asked)

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
            table, most = self._open(), self._loop.core.settings.event_bytes
            append = read_append(self.name, aggregate_type, aggregate_id, events, reached.version, most)
            call = self._checked_call(table, [append], None, keyed=asked)
        elif asked is None:
            return Receipt(self._loop.core.epoch, version=reached.version, position=reached.position)
        else:
            self._open()
            told = {"version": reached.version, "position": reached.position}
            call = Call({}, asked.key, asked.digest, quiet=True, told=told)
        with self._loop.leaving(call):
            receipt = self._loop.receipt_of(self._loop.enter(call))
        self.appended(aggregate_type, aggregate_id, len(events), receipt)
        return receipt

    def _open(self) -> Table:
        core = self._loop.core
        core.refuse_closed()
        core.refuse_read_only()
        core.refuse_broken()
        return store_table(core.catalog, self.name)

    def _checked_call(
        self,
        table: Table,
        appends: Sequence[Append],
        changes: Mapping[str, Sequence[object]] | None,
        always: Mapping[str, Sequence[object]] | None = None,
        keyed: Keyed | None = None,
    ) -> Call:
        types = types_of(self._loop.core.newest_of_names([beside(self.name, "types")]), self.name)
        options = cast("Mapping[str, Any]", table.events)
        for append in appends:
            refuse_unfit(self.name, types, not options["unknown_types"], append)
        if keyed is not None:
            appends = [with_ids(one, keyed.key) for one in appends]
        return append_call(self.name, appends, changes, keys=self._parts.keys, always=always, keyed=keyed)

    def appended(self, aggregate_type: str, aggregate_id: str, count: int, receipt: Receipt) -> None:
        """Take a snapshot in the background where these events make one due; whatever there is, nothing is raised."""
        every = int(self._option("snapshot_events"))
        version = receipt.version or 0
        if every > 0 and version // every > (version - count) // every:
            self._parts.snapshots.take_later(self._loop, self.name, aggregate_type, aggregate_id, version)

    def read(
        self,
        aggregate_type: str | None = None,
        aggregate_id: str | None = None,
        since: int = 0,
        until: int | None = None,
    ) -> pa.Table:
        """Events after the position `since`, up to and including `until`, in the order of their positions.

        Encrypted values are as they were given, NULL where their key was forgotten.
        """
        core = self._loop.core
        core.refuse_closed()
        state, schema = core.newest_of_names([self.name])[self.name]
        name = None if aggregate_id is None else str(aggregate_id)
        return self._opened(read_events(state, schema, aggregate_type, name, since, until))

    def _opened(self, rows: pa.Table) -> pa.Table:
        if self._option("data") == "json":
            column = rows.column("event_data")
            if any(SEALED in one for one in column.to_pylist()):
                texts = open_texts(self._parts.keys, column.to_pylist())
                at = rows.column_names.index("event_data")
                rows = rows.set_column(at, "event_data", pa.array(texts, column.type))
        return rows

    def state(
        self,
        aggregate_type: str,
        aggregate_id: str,
        as_of: int | datetime | str | None = None,
        *,
        snapshots: bool = True,
    ) -> dict[str, Any] | None:
        """What an aggregate is, or was as of a position or a time; None if it was not there, or was deleted.

        Snapshots make it faster and change nothing; `snapshots=False` reads every event.
        """
        reached = self.reached(aggregate_type, aggregate_id, as_of, snapshots=snapshots)
        return shown(reached, self._parts.code, self._parts.keys, aggregate_type)

    def reached(
        self,
        aggregate_type: str,
        aggregate_id: str,
        as_of: int | datetime | str | None = None,
        *,
        snapshots: bool = True,
    ) -> Reached:
        """The same with its version and position; encrypted values of merged states are still encrypted."""
        self._loop.core.refuse_closed()
        when = moment(as_of)
        names = [self.name, beside(self.name, "aggregates"), beside(self.name, "snapshots")]
        found, code, keys = self._loop.core.newest_of_names(names), self._parts.code, self._parts.keys
        reached = reach(found, self.name, code, keys, aggregate_type, str(aggregate_id), when, snapshots)
        if when is None and snapshots and self._is_due(reached):
            self._parts.snapshots.take_later(self._loop, self.name, aggregate_type, str(aggregate_id), reached.version)
        return reached

    def shown_state(
        self, aggregate_type: str, aggregate_id: str, as_of: int | datetime | str | None = None
    ) -> tuple[dict[str, Any] | None, Reached]:
        """A state as a caller sees it, and how it was reached."""
        reached = self.reached(aggregate_type, aggregate_id, as_of)
        return shown(reached, self._parts.code, self._parts.keys, aggregate_type), reached

    def page(
        self, aggregate_type: str | None, aggregate_id: str | None, since: int, limit: int
    ) -> tuple[list[dict[str, Any]], bool]:
        """The first events after a position, so many at most, and whether others follow."""
        return self.find(Wanted(aggregate_type, aggregate_id, since=since, limit=limit))

    def find(self, wanted: Wanted) -> tuple[list[dict[str, Any]], bool]:
        """The first events that are wanted, and whether others follow."""
        core, aggregates = self._loop.core, beside(self.name, "aggregates")
        core.refuse_closed()
        found = core.newest_of_names([self.name, aggregates])
        named = (wanted.aggregate_type, wanted.aggregate_id)
        heads = [] if None in named else rows_by(found[aggregates][0], (0, 1), [named])
        rows, more = find_events(*found[self.name], wanted, int(heads[0][2]) if heads else 0)
        return self._opened(rows).to_pylist(maps_as_pydicts="strict"), more

    def aggregate_types(self) -> list[str]:
        """The types of its aggregates, for who named another."""
        name = beside(self.name, "aggregates")
        return types_there(self._loop.core.newest_of_names([name])[name][0])

    def _is_due(self, reached: Reached) -> bool:
        if reached.read == 0 or self._loop.core.read_only:
            return False
        return is_due(reached, int(self._option("snapshot_events")), int(self._option("snapshot_seconds")))

    def _option(self, name: str) -> Any:
        # A store may be dropped right after an append to it, which is acknowledged all the same.
        found = self._loop.core.catalog.relations.get(self.name)
        return (found.events or {}).get(name, 0) if isinstance(found, Table) else 0

    def snapshot(self, aggregate_type: str, aggregate_id: str) -> bool:
        """Take a snapshot of an aggregate now; whether there is one after it."""
        self._open()
        return self._parts.snapshots.take(self._loop, self.name, aggregate_type, str(aggregate_id))

    def drop_snapshots(self) -> int:
        """Delete all snapshots; how many there were. Nothing but time is lost."""
        self._open()
        return drop_snapshots(self._loop, self.name)

    def register_schema(
        self,
        event_type: str,
        schema: Mapping[str, Any] | str | None = None,
        version: int = 1,
        *,
        encrypted: Sequence[str] = (),
        subject: str = "",
    ) -> Receipt:
        """Register a version of an event type: its JSON Schema, and the fields whose values are encrypted.

        From the next append on its events are checked. Encrypted fields are about the aggregate, or about whom the
        field `subject` of the event names; `forget` makes them unreadable.
        """
        with self._parts.audit.noting(f"CREATE EVENT TYPE store={self.name} event_type={event_type} version={version}"):
            return register_type(self._loop, self.name, event_type, schema, version, encrypted, subject)

    def fold(self, aggregate_type: str, *, version: str = "") -> Callable[[AnyFold], AnyFold]:
        """Register how the events of a type become a state: a pure function of the state before, or None, and an event.

        Snapshots are of one fold: of its code, of what it was made with, and of its version. Give another version where
        something else changes what it gives; one that cannot be told from others, such as a method of an object, has
        snapshots only with a version.

        @store.fold("Account")
        def balance(state, event):
            return {"balance": (state or {"balance": 0})["balance"] + event["event_data"]["amount"]}
        """

        def registered(function: AnyFold) -> AnyFold:
            told = fingerprint(function)
            name = f"{told or ''}{version}" if told or version else None
            self._parts.code.folds[aggregate_type] = function, name
            return function

        return registered

    def upcast(self, event_type: str, version: int) -> Callable[[AnyUpcast], AnyUpcast]:
        """Register how data of one schema version become data of the next; states and folds see the newest.

        @store.upcast("CustomerCreated", 1)
        def with_parts(data):
            return {**data, "first_name": data["name"].split()[0]}
        """

        def registered(function: AnyUpcast) -> AnyUpcast:
            self._parts.code.upcasters[event_type, version] = function, fingerprint(function)
            return function

        return registered

    def subscribe(
        self,
        name: str,
        handle: Callable[[dict[str, Any]], object],
        *,
        aggregate_type: str | None = None,
        since: int = 0,
        attempts: int = 3,
    ) -> Follower:
        """Have a function given every event in order, from where the subscription of this name was, else after `since`.

        What it raises on, so many times, is parked, and the next event comes. It may be given an event again that it
        had before the process ended; `position` and `event_id` tell. `.stop()` ends it.
        """
        self._open()
        if name.startswith((PREFIX, PROJECTION)):
            raise HeadraceError(
                f"{name[:60]!r} cannot be the name of a subscription",
                hint=f"choose one that does not begin with {PREFIX} or {PROJECTION}",
            )
        one = subscription(self._loop, self.name, name, handle, self._opened_event, aggregate_type, since, attempts)
        self._parts.add(one)
        one.start()
        return one

    def follow_outbox(self, relation: str) -> Follower:
        """Have the rows of an outbox become events, exactly once, the event's id being the row's; also after a restart.

        The relation is the raw table of a source that captures the outbox, or a table with the columns id,
        aggregatetype, aggregateid, type and payload. Rows that are no events are among `parked`.
        """
        self._open()
        found = self._loop.core.catalog.get(relation)
        refuse_no_outbox(found.schema.names, found.name)
        return self.followed_outbox(found.name)

    def followed_outbox(self, relation: str) -> Follower:
        """Whoever follows an outbox, whether or not it is one by now; made if there is none."""
        for one in self._parts.followers:
            if one.name == f"{PREFIX}{relation}" and not one.is_stopped:
                return one
        made = OutboxFollower(self._loop, self.name, relation, self._call_of_rows)
        made.begin()
        self._parts.add(made)
        made.start()
        return made

    def _call_of_rows(self, rows: Sequence[Mapping[str, Any]], kept: Mapping[str, Sequence[object]]) -> Call:
        return self.call_many([append_of(self.name, row) for row in rows], kept)

    def parked(self, name: str | None = None) -> list[dict[str, Any]]:
        """What subscriptions could not take, each with the reason."""
        return parked_events(self._loop, self.name, name)

    def replay_parked(self, name: str, handle: Callable[[dict[str, Any]], object] | None = None) -> tuple[int, int]:
        """Give what a subscription has parked to a function again; how many it took, and how many stay.

        Parked rows of an outbox ("outbox:" and its name) are appended again; there the function is not needed, and what
        it returns is appended in the place of the row that it is given.
        """
        self._open()
        if name.startswith(PREFIX):
            return replay_outbox(self._loop, self.name, name, self._call_of_rows, handle)
        if handle is None:
            raise HeadraceError(f"nobody takes what {name[:60]} has parked", hint="give the function that takes it")
        return replay_parked(self._loop, self.name, name, handle, self._opened_event)

    def unsubscribe(self, name: str) -> None:
        """Forget how far a subscription is, and what it has parked."""
        self._open()
        self._parts.stop(name, forgotten=True)
        forget_subscription(self._loop, self.name, name)

    def project(
        self,
        name: str,
        aggregate_type: str,
        columns: str,
        fold: Fold,
        *,
        live: bool = True,
        version: str = "",
        opens_encrypted: bool = False,
    ) -> FoldedProjection:
        """Keep a table by a pure function of a state and an event: for what SQL cannot say.

            store.project("balances", "Account", "balance DECIMAL(12,2)", lambda state, event: ...)

        Its columns are the fields of the state of those names. It follows the store in the background, if it is live;
        `.rebuild()` folds all events anew on Spark and then takes the place of what was, and so does a function whose
        code or version is another than that of the rows. Encrypted values are None for it, unless it opens them: then
        the table holds them as they were, also after `forget`.
        """
        self._open()
        code = self._parts.code

        def unopened(row: Mapping[str, Any]) -> dict[str, Any]:
            event = withheld(row)
            code.upcast(event)
            return event

        made = FoldedProjection(
            self._loop,
            self.name,
            name,
            aggregate_type,
            columns,
            fold,
            self._opened_event if opens_encrypted else unopened,
            lambda: opens_encrypted or bool(code.upcasters),
            f"{version} opened" if opens_encrypted else version,
        )
        # Whoever kept it until now has other code, or will be of no use.
        self._parts.stop(made.follower.name, forgotten=True)
        self._parts.add(made.follower)
        if live:
            made.follower.start()
        return made

    def audit_log(self, name: str = "audit_log", sources: Sequence[str] = ()) -> None:
        """Make a view of who changed what and when, from the events and from all that these sources captured."""
        self._open()
        create_audit_log(self._loop, self.name, name, sources)

    def _opened_event(self, row: Mapping[str, Any]) -> dict[str, Any]:
        event = as_event(row)
        if SEALED in str(event["event_data"]):
            event["event_data"] = unsealed(self._parts.keys, event["event_data"])
        self._parts.code.upcast(event)
        return event

    def forget(self, aggregate_type: str, aggregate_id: str) -> bool:
        """Delete the key of an aggregate's encrypted fields for good; whether there was one."""
        told = f"FORGET store={self.name} aggregate_type={aggregate_type} aggregate_id={aggregate_id}"
        return self._forget(told, *names_of_aggregate(aggregate_type, str(aggregate_id)))

    def forget_subject(self, subject: str) -> bool:
        """Delete the key of whom encrypted fields are about, as the field `subject` names them."""
        names = names_of_subject(str(subject))
        return self._forget(f"FORGET store={self.name} subject={names[0]}", *names)

    def _forget(self, told: str, *names: str) -> bool:
        self._open()
        # Between epochs, so that no event is encrypted before and there only after.
        found = self._loop.between_epochs(lambda: self._parts.keys.forget(*names))
        self._parts.audit.note(told, "done" if found else "there was no key")
        return found
