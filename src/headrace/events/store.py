"""An event store as programs use it: its documented verbs, over the open store behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from headrace.epoch.receipt import Receipt
from headrace.errors import HeadraceError
from headrace.events.audit import create_audit_log
from headrace.events.commands import Command, CommandResult, run_command
from headrace.events.define import register_type
from headrace.events.erasure import names_of_aggregate, names_of_subject
from headrace.events.fingerprints import fingerprint
from headrace.events.folded import PREFIX as PROJECTION
from headrace.events.folded import FoldedProjection, withheld
from headrace.events.followers import Follower
from headrace.events.open_store import OpenStore
from headrace.events.outbox import PREFIX, refuse_no_outbox
from headrace.events.reading import read_events
from headrace.events.snapshots import drop_snapshots
from headrace.events.states import Fold, Upcast
from headrace.events.subscriptions import (
    forget_subscription,
    parked_events,
    replay_outbox,
    replay_parked,
    subscription,
)

AnyFold = TypeVar("AnyFold", bound=Fold)
AnyUpcast = TypeVar("AnyUpcast", bound=Upcast)


def open_store_of(store: EventStore) -> OpenStore:
    """The store behind its verbs, for the parts of Headrace that work on it: servers, other processes, tests."""
    return store._store  # pyright: ignore[reportPrivateUsage]


class EventStore:
    """An event store of an open home: an append-only table whose rows have a version in their aggregate and a position
    in the store, both without holes."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._loop = store.loop
        self._parts = store.parts
        self.name = store.name

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
        call = self._store.call(
            aggregate_type, aggregate_id, events, expected, correlation_id, causation_id, changes, key
        )
        receipt = self._store.commit(call)
        self._store.appended(str(aggregate_type), str(aggregate_id), len(events), receipt)
        return receipt

    def append_many(self, appends: Sequence[Mapping[str, Any]]) -> Receipt:
        """Append events of several aggregates, all or none: each {"aggregate_type", "aggregate_id", "events",
        "expected"}. The receipt has the version and the position of the last event."""
        return self._store.commit(self._store.call_many(appends))

    def run(self, command: Command, /, *, key: str | None = None, **arguments: Any) -> CommandResult:
        """Carry a command out; its result carries the epoch at which every view shows its events.

        Raises CommandRefused, and then nothing has changed. The same key again has the result of the first time.
        """
        return run_command(self._store, command, arguments, key)

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
        return self._store.opened(read_events(state, schema, aggregate_type, name, since, until))

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
        return self._store.shown_state(aggregate_type, aggregate_id, as_of, snapshots)[0]

    def snapshot(self, aggregate_type: str, aggregate_id: str) -> bool:
        """Take a snapshot of an aggregate now; whether there is one after it."""
        self._store.writable()
        return self._parts.snapshots.take(self._loop, self.name, aggregate_type, str(aggregate_id))

    def drop_snapshots(self) -> int:
        """Delete all snapshots; how many there were. Nothing but time is lost."""
        self._store.writable()
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
        self._store.writable()
        if name.startswith((PREFIX, PROJECTION)):
            raise HeadraceError(
                f"{name[:60]!r} cannot be the name of a subscription",
                hint=f"choose one that does not begin with {PREFIX} or {PROJECTION}",
            )
        one = subscription(
            self._loop, self.name, name, handle, self._store.opened_event, aggregate_type, since, attempts
        )
        self._parts.add(one)
        one.start()
        return one

    def follow_outbox(self, relation: str) -> Follower:
        """Have the rows of an outbox become events, exactly once, the event's id being the row's; also after a restart.

        The relation is the raw table of a source that captures the outbox, or a table with the columns id,
        aggregatetype, aggregateid, type and payload. Rows that are no events are among `parked`.
        """
        self._store.writable()
        found = self._loop.core.catalog.get(relation)
        refuse_no_outbox(found.schema.names, found.name)
        return self._store.followed_outbox(found.name)

    def parked(self, name: str | None = None) -> list[dict[str, Any]]:
        """What subscriptions could not take, each with the reason."""
        return parked_events(self._loop, self.name, name)

    def replay_parked(self, name: str, handle: Callable[[dict[str, Any]], object] | None = None) -> tuple[int, int]:
        """Give what a subscription has parked to a function again; how many it took, and how many stay.

        Parked rows of an outbox ("outbox:" and its name) are appended again; there the function is not needed, and what
        it returns is appended in the place of the row that it is given.
        """
        self._store.writable()
        if name.startswith(PREFIX):
            return replay_outbox(self._loop, self.name, name, self._store.call_of_rows, handle)
        if handle is None:
            raise HeadraceError(f"nobody takes what {name[:60]} has parked", hint="give the function that takes it")
        return replay_parked(self._loop, self.name, name, handle, self._store.opened_event)

    def unsubscribe(self, name: str) -> None:
        """Forget how far a subscription is, and what it has parked."""
        self._store.writable()
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
        self._store.writable()
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
            self._store.opened_event if opens_encrypted else unopened,
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
        self._store.writable()
        create_audit_log(self._loop, self.name, name, sources)

    def forget(self, aggregate_type: str, aggregate_id: str) -> bool:
        """Delete the key of an aggregate's encrypted fields for good; whether there was one."""
        told = f"FORGET store={self.name} aggregate_type={aggregate_type} aggregate_id={aggregate_id}"
        return self._forget(told, *names_of_aggregate(aggregate_type, str(aggregate_id)))

    def forget_subject(self, subject: str) -> bool:
        """Delete the key of whom encrypted fields are about, as the field `subject` names them."""
        names = names_of_subject(str(subject))
        return self._forget(f"FORGET store={self.name} subject={names[0]}", *names)

    def _forget(self, told: str, *names: str) -> bool:
        self._store.writable()
        # Between epochs, so that no event is encrypted before and there only after.
        found = self._loop.between_epochs(lambda: self._parts.keys.forget(*names))
        self._parts.audit.note(told, "done" if found else "there was no key")
        return found
