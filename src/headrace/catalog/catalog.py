"""What a home has: its tables and views, who reads whom, and the stores behind them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql.types import StructType

from headrace.catalog.columns import ColumnHistory
from headrace.errors import RelationNameError, SystemTable
from headrace.intake.table import TableContract
from headrace.rules.base import Rule
from headrace.rules.context import RuleContext
from headrace.sql.flows import AutoCdc
from headrace.sql.resolve import KnownColumns, Resolved
from headrace.sql.tokens import scan
from headrace.state.store import Store


@dataclass(eq=False)
class Table:
    """An input relation."""

    name: str
    contract: TableContract
    store: Store
    tombstones: Store | None = None
    ids: tuple[int, ...] = ()
    # Whether only Headrace itself changes it, as sources change what they keep about their work.
    system: bool = False
    # Where in their sources the last changes of keys were; of a table with a key, and empty if nothing is captured.
    positions: Store | None = None
    # Of an event store: how its data is kept and when snapshots are taken. Events are appended and never change.
    events: Mapping[str, Any] | None = None
    # The event store that it belongs to, beside which it is kept.
    kept_for: str = ""

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return self.contract.schema

    @property
    def store_names(self) -> list[str]:
        """The names of its stores."""
        return [one.name for one in self.stores]

    @property
    def stores(self) -> list[Store]:
        """Its rows, and what is remembered of keys beside them."""
        return [self.store, *(one for one in (self.tombstones, self.positions) if one is not None)]


@dataclass(frozen=True)
class ViewDefinition:
    """What the user wrote, and the epoch whose columns it was written for."""

    name: str
    sql: str
    columns: tuple[str, ...] = ()
    materialized: bool = False
    policy: str = "auto"
    line: int = 1
    column: int = 1
    as_of: int | None = None
    # The flow whose target it is, which made the query.
    flow: AutoCdc | None = None


@dataclass(eq=False)
class View:
    """A derived relation: its query, the rule that follows it, the state that the rule keeps, and a line of EXPLAIN for
    each of its operators."""

    definition: ViewDefinition
    resolved: Resolved
    schema: StructType
    store: Store
    context: RuleContext
    rule: Rule | None
    hidden: dict[str, Store] = field(default_factory=dict[str, Store])
    reasons: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def incremental(self) -> bool:
        """Whether no operator reads a whole input for a small change."""
        return self.rule is not None and not self.reasons


Relation = Table | View


# The table in which feeds keep what their sinks refused.
PARKED = "parked_events"
# What the head of an epoch tells of where rows come from and where changes go.
_OF_FLOWS = ("sources", "drop_sources", "feeds", "drop_feeds")


@dataclass(frozen=True)
class Source:
    """Where rows of a table come from; of one that was read once, how far, and the epoch that brought them."""

    name: str
    table: str
    connector: str
    location: str
    mode: str
    options: Mapping[str, Any]
    position: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rows: int = 0
    # Running, Paused, or Done for one that was read whole once.
    state: str = "Done"
    # Why the source was paused, where no statement did it.
    error: str = ""
    epoch: int = field(default=0, compare=False)


def source_definition(source: Source) -> dict[str, Any]:
    """A source as the ledger keeps it; its epoch is that of the commit."""
    definition = asdict(source)
    del definition["epoch"]
    if not source.error:
        # Earlier releases, which do not know the field, can open the home.
        del definition["error"]
    return definition


@dataclass(frozen=True)
class Feed:
    """Where the changes of a relation go."""

    # Never used by another feed, also one of the same name that was made anew.
    id: str
    name: str
    table: str
    sink: str
    location: str
    options: Mapping[str, Any]
    created: str
    # It tells what comes after this epoch, and a first scan what was there at it.
    begins_after: int
    # How often it was asked to tell all anew.
    scans: int = 0
    # Running, Paused, or Error with what stopped it.
    state: str = "Running"
    error: str = ""
    epoch: int = field(default=0, compare=False)


def feed_definition(feed: Feed) -> dict[str, Any]:
    """A feed as the ledger keeps it; its epoch is that of the commit."""
    definition = asdict(feed)
    del definition["epoch"]
    return definition


@dataclass(frozen=True, eq=False)
class Catalog:
    """All relations by name, in the order they were made: a view comes after what it reads.

    A value: who holds one sees the same relations for ever, whatever is defined meanwhile.
    """

    relations: Mapping[str, Relation] = field(default_factory=dict[str, Relation])
    sources: Mapping[str, Source] = field(default_factory=dict[str, Source])
    history: ColumnHistory = field(default_factory=ColumnHistory)
    feeds: Mapping[str, Feed] = field(default_factory=dict[str, Feed])

    def having(self, *made: Relation) -> Catalog:
        """The catalog with these relations too, each in place of one of the same name."""
        return replace(self, relations={**self.relations, **{one.name: one for one in made}})

    def without(self, name: str) -> Catalog:
        """The catalog without a relation."""
        return replace(self, relations={known: one for known, one in self.relations.items() if known != name})

    def recorded(self, epoch: int, head: Mapping[str, Any]) -> Catalog:
        """The catalog with what an epoch's head tells, beside the relations that it makes."""
        history = self.history.recorded(epoch, head)
        if history is self.history and not any(head.get(word) for word in _OF_FLOWS):
            return self
        gone = head.get("drop_sources", ())
        sources = {name: one for name, one in self.sources.items() if name not in gone}
        sources.update({one["name"]: Source(**one, epoch=epoch) for one in head.get("sources", ())})
        gone = head.get("drop_feeds", ())
        feeds = {name: one for name, one in self.feeds.items() if name not in gone}
        feeds.update({one["name"]: Feed(**one, epoch=epoch) for one in head.get("feeds", ())})
        return replace(self, history=history, sources=sources, feeds=feeds)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.relations

    def get(self, name: str) -> Relation:
        """The relation of this name, or an error that suggests a near one."""
        found = self.relations.get(name.lower())
        if found is None:
            near = difflib.get_close_matches(name.lower(), list(self.relations), n=1)
            raise RelationNameError(
                f"there is no table or view {name}",
                hint=f"did you mean {near[0]}?" if near else "SHOW TABLES and SHOW VIEWS list what there is",
            )
        return found

    def table(self, name: str) -> Table:
        """The table of this name; a view is refused."""
        found = self.get(name)
        if isinstance(found, View):
            raise RelationNameError(
                f"{name} is a view",
                detail="A view follows its query and takes no changes of its own.",
                hint="change the tables that it reads",
            )
        return found

    def open_table(self, name: str) -> Table:
        """The table of this name, if users may change it; a view, and what sources keep themselves, are refused."""
        found = self.table(name)
        if found.events is not None:
            raise SystemTable(
                f"{found.name} is an event store, to which events are only appended",
                detail="No event is ever changed or deleted.",
                hint=f"append with hr.events({found.name!r}).append(...) or POST /v1/events/{{type}}/{{id}}",
            )
        if found.kept_for:
            raise SystemTable(
                f"{found.name} is kept for the event store {found.kept_for}, and only that changes it",
                detail="It can be queried, followed and read by views.",
                hint=f"append events to {found.kept_for}",
            )
        if found.system:
            raise SystemTable(
                f"{found.name} is kept by {'feeds' if found.name == PARKED else 'sources'}, and only they change it",
                detail="It can be queried, followed and read by views.",
                hint="copy the rows into a table of your own; REPLAY and DISCARD change dead_letters and parked_events",
            )
        return found

    def view(self, name: str) -> View:
        """The view of this name; a table is refused."""
        found = self.get(name)
        if isinstance(found, Table):
            raise RelationNameError(
                f"{name} is a table", hint="views are explained and verified; DESCRIBE shows a table's columns"
            )
        return found

    def source(self, name: str) -> Source:
        """The source of this name, or an error that says where all are listed."""
        if name not in self.sources:
            raise RelationNameError(f"there is no source {name}", hint="SHOW SOURCES lists what there is")
        return self.sources[name]

    def feed(self, name: str) -> Feed:
        """The changefeed of this name, or an error that says where all are listed."""
        if name not in self.feeds:
            raise RelationNameError(f"there is no changefeed {name}", hint="SHOW CHANGEFEEDS lists what there is")
        return self.feeds[name]

    def tables(self) -> list[Table]:
        """All tables."""
        return [one for one in self.relations.values() if isinstance(one, Table)]

    def views(self) -> list[View]:
        """All views, each after what it reads."""
        return list(self._ordered)

    def flows(self) -> list[tuple[AutoCdc, View]]:
        """All flows, each with its target."""
        return [(one.definition.flow, one) for one in self.views() if one.definition.flow is not None]

    @property
    def has_views(self) -> bool:
        """Whether there is a view."""
        return any(isinstance(one, View) for one in self.relations.values())

    @cached_property
    def _ordered(self) -> tuple[View, ...]:
        ordered: list[View] = []
        done = {table.name for table in self.tables()}
        waiting = [one for one in self.relations.values() if isinstance(one, View)]
        while waiting:
            ready = [view for view in waiting if all(name in done for name in view.resolved.reads)]
            assert ready, "views that read each other"
            ordered.extend(ready)
            done.update(view.name for view in ready)
            waiting = [view for view in waiting if view.name not in done]
        return tuple(ordered)

    @property
    def reads_clock(self) -> bool:
        """Whether any view moves with time alone."""
        return any(isinstance(one, View) and one.resolved.uses_clock for one in self.relations.values())

    def users(self, name: str) -> list[View]:
        """The views that read a relation directly."""
        return [view for view in self.views() if name in view.resolved.reads]

    def dependents(self, name: str) -> list[View]:
        """All views that a relation reaches, each after what it reads."""
        reached = {name}
        found: list[View] = []
        for view in self.views():
            if reached.intersection(view.resolved.reads):
                reached.add(view.name)
                found.append(view)
        return found

    def known_columns(self, definition: ViewDefinition) -> dict[str, KnownColumns]:
        """The tables that a view knows by fewer columns or other names than they have now."""
        words = {token.text.strip("`").lower() for token in scan(definition.sql)}
        found: dict[str, KnownColumns] = {}
        for table in self.tables():
            if definition.as_of is None or table.name not in words:
                continue
            then = self.history.at(table.name, definition.as_of)
            if then is None or then.schema is None:
                continue
            indexes = {one: index for index, one in enumerate(table.ids)}
            pairs = zip(then.ids, then.schema.names, strict=True)
            known_columns = tuple((indexes[one], name) for one, name in pairs if one in indexes)
            if known_columns != tuple(enumerate(table.schema.names)):
                found[table.name] = known_columns
        return found

    def stores(self) -> Iterator[Store]:
        """Every store of every relation, hidden ones included."""
        for relation in self.relations.values():
            if isinstance(relation, View):
                yield relation.store
                yield from relation.hidden.values()
            else:
                yield from relation.stores


__all__ = [
    "Catalog",
    "Feed",
    "Relation",
    "Source",
    "Table",
    "View",
    "ViewDefinition",
    "feed_definition",
    "source_definition",
]
