"""CREATE, ALTER, PAUSE, RESUME, RESYNC and DROP CHANGEFEED: what each checks, and what it takes into the home."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.catalog.catalog import Catalog, Feed, Table, feed_definition
from headrace.definitions.adopt import adopt
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import FeedError, RelationNameError
from headrace.feeds.filter import RowFilter
from headrace.feeds.options import FIXED, FeedOptions, read_options
from headrace.feeds.parked import chosen_by, discard, feed_of, lacks_table, parked_table, refuse_again
from headrace.feeds.running import Feeds
from headrace.feeds.sink import Sink
from headrace.feeds.sinks import SINKS
from headrace.feeds.target import (
    is_referred,
    location_referred_to,
    refuse_plain_secrets,
    secrets_hidden,
    target_of,
    warning_of,
)
from headrace.sql.syntax import AlterFeed, CreateFeed, FeedAction, ParkedAction

# So many parked events are discarded in one epoch.
_REPLAYED_TOGETHER = 500
_log = logging.getLogger("headrace.feeds")


def create_feed(core: Core, statement: CreateFeed) -> None:
    """Make a feed; it begins when the statement is done."""
    if statement.if_not_exists and statement.name in core.catalog.feeds:
        return
    feed = planned_feed(core, core.catalog, statement)
    adopt(core, kept_tables(core.catalog), feeds=[feed])
    for warning in warnings_of(core.catalog, [feed]):
        _log.warning("%s", warning, extra={"feed": feed.name, "relation": feed.table})


def warnings_of(catalog: Catalog, feeds: Sequence[Feed]) -> list[str]:
    """Return what somebody should know of feeds that are made."""
    found = ((one.name, warning_of(one, catalog.get(one.table))) for one in feeds)
    return [f"changefeed {name}: {warning}" for name, warning in found if warning is not None]


def look_up(core: Core, statement: CreateFeed | AlterFeed) -> None:
    """Have the sink of a feed refuse what only other machines know to be wrong; the definition checks all the rest."""
    feed = core.catalog.feeds.get(statement.name)
    if isinstance(statement, AlterFeed):
        if feed is None:
            return
        sink, location, options = SINKS.get(feed.sink), feed.location, _altered_options(feed, statement)
    elif feed is None:
        sink, location, options = SINKS.get(statement.sink), statement.location, dict(statement.options)
    else:
        return
    if sink is not None:
        sink.look_up(location_referred_to(location), options)


def kept_tables(catalog: Catalog) -> list[Table]:
    """The tables that feeds keep, and that a home does not have yet."""
    return [parked_table()] if lacks_table(catalog) else []


def planned_feed(core: Core, catalog: Catalog, statement: CreateFeed, compiles: bool = True) -> Feed:
    """The feed that a statement describes, over a catalog that has its relation; or an error that tells why not."""
    if statement.name in catalog.feeds:
        raise RelationNameError(
            f"changefeed {statement.name} exists already",
            hint="write CREATE CHANGEFEED IF NOT EXISTS, or drop it first",
        )
    sink = _sink(statement.sink)
    relation = catalog.get(statement.table)
    feed = Feed(
        secrets.token_hex(16),
        statement.name,
        relation.name,
        statement.sink,
        location_of(statement),
        dict(statement.options),
        datetime.now(UTC).isoformat(),
        core.epoch + 1,
    )
    options = _checked(core, catalog, feed, sink, compiles)
    return replace(feed, begins_after=_cursor(core, options.cursor)) if options.cursor else feed


def location_of(statement: CreateFeed) -> str:
    """Where a feed goes; a path means the same wherever the home is opened next."""
    location = statement.location
    if statement.sink == "files" and "://" not in location and not is_referred(location):
        return str(Path(location).expanduser().absolute())
    return location


def _checked(core: Core, catalog: Catalog, feed: Feed, sink: Sink, compiles: bool = True) -> FeedOptions:
    """The options of a feed, when nothing speaks against it."""
    options = read_options(feed.options, sink)
    refuse_plain_secrets(feed.location, feed.options, sink)
    relation = catalog.get(feed.table)
    target = target_of(feed, sink, relation)
    with secrets_hidden(feed, target):
        sink.check(target)
    if options.filter_exits and not options.filter:
        raise FeedError("filter_exits is about a filter, and there is none", hint="give the option filter too")
    if options.filter and compiles:
        row_filter = RowFilter(core, feed.name, relation, options.filter)
        try:
            row_filter.compile()
        finally:
            row_filter.close()
    return options


def _cursor(core: Core, cursor: str) -> int:
    """The epoch after which a feed is to begin."""
    if cursor.isascii() and cursor.isdigit() and len(cursor) < 19:
        epoch = int(cursor)
    else:
        try:
            moment = datetime.fromisoformat(cursor)
        except ValueError:
            raise FeedError(
                f"option cursor cannot be {cursor[:100]!r}",
                hint="it is an epoch, or a time such as '2026-01-31T12:00:00Z'",
            ) from None
        epoch = core.epoch_at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if not core.ledger.oldest <= epoch <= core.epoch:
        raise FeedError(
            f"a changefeed cannot begin after epoch {epoch}",
            detail=f"The log goes from epoch {core.ledger.oldest} to {core.epoch}.",
            hint="name an epoch of these, or leave out cursor",
        )
    return epoch


def alter_feed(loop: Loop, statement: AlterFeed) -> None:
    """Give a feed other options; it goes on where it was, and with other keys it delivers all rows again."""
    core = loop.core
    feed = core.catalog.feed(statement.name)
    sink = _sink(feed.sink)
    for name in (*dict(statement.options), *statement.unset):
        if name in FIXED and name not in sink.options:
            raise FeedError(
                f"option {name} is of the beginning of a changefeed, which has been",
                hint="drop the changefeed and create it again; RESYNC CHANGEFEED delivers all rows once more",
            )
    options = _altered_options(feed, statement)
    lacking = [name for name in statement.unset if name not in feed.options]
    if lacking:
        raise FeedError(f"changefeed {feed.name} was given no option {lacking[0]}", hint="SHOW CHANGEFEEDS tells them")
    # Other keys make other events, for which no position of before holds.
    scans = feed.scans + (options.get("keys") != feed.options.get("keys"))
    altered = replace(feed, options=options, scans=scans)
    _checked(core, core.catalog, altered, sink)
    _redefine(loop, altered)


def _altered_options(feed: Feed, statement: AlterFeed) -> dict[str, Any]:
    options = {**feed.options, **dict(statement.options)}
    return {name: value for name, value in options.items() if name not in statement.unset}


def change_feed(loop: Loop, feeds: Feeds, statement: FeedAction) -> None:
    """Drop a feed, pause it, have it go on, or tell all rows anew."""
    core = loop.core
    if statement.verb == "drop" and statement.if_exists and statement.name not in core.catalog.feeds:
        return
    feed = core.catalog.feed(statement.name)
    if statement.verb == "drop":
        loop.submit(Call({}, head={"drop_feeds": [feed.name]}))
        return
    if statement.verb == "resync":
        core.catalog.get(feed.table)
        _redefine(loop, replace(feed, scans=feed.scans + 1, state="Running", error=""))
        feeds.restart(feed.name)
        return
    state = "Paused" if statement.verb == "pause" else "Running"
    if state == "Running":
        sink = _sink(feed.sink)
        if feed.table in core.catalog:
            # What the secret was when it failed, it may be no longer: that is for the runner to see.
            read_options(feed.options, sink)
    wanted = replace(feed, state=state, error="")
    if wanted != feed:
        _redefine(loop, wanted)
    if state == "Running":
        # It may have stopped by itself, or waits long until it tries again.
        feeds.restart(feed.name)


def act_on_parked(loop: Loop, feeds: Feeds, statement: ParkedAction) -> Receipt:
    """Send parked events after all, or let them go; the receipt tells how many."""
    rows = chosen_by(loop.core, statement.where)
    return discard(loop, rows) if statement.verb == "discard" else replay_parked(loop, feeds, rows)


def replay_parked(loop: Loop, feeds: Feeds, rows: list[dict[str, Any]]) -> Receipt:
    """Deliver parked events, and discard those that arrived; those refused again stay parked, with the reason.

    If a sink is unavailable, `FeedUnavailable` is raised, and what did not arrive by then stays parked.
    """
    delivered, refused = 0, 0
    epoch = loop.core.epoch
    for start in range(0, len(rows), _REPLAYED_TOGETHER):
        outcome = _Replayed()
        try:
            for row in rows[start : start + _REPLAYED_TOGETHER]:
                _replay_row(loop.core, feeds, row, outcome)
        finally:
            # Also where the sink is unavailable by now: what arrived is not delivered again by the next REPLAY.
            if outcome.delivered:
                epoch = discard(loop, outcome.delivered).epoch
            if outcome.refused:
                epoch = refuse_again(loop, outcome.refused).epoch
        delivered, refused = delivered + len(outcome.delivered), refused + len(outcome.refused)
    return Receipt(epoch, {"parked_events": delivered}, {}, {"parked_events": refused} if refused else {}, 0.0)


@dataclass
class _Replayed:
    delivered: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    refused: list[tuple[Mapping[str, Any], str]] = field(default_factory=list[tuple[Mapping[str, Any], str]])


def _replay_row(core: Core, feeds: Feeds, row: Mapping[str, Any], outcome: _Replayed) -> None:
    feed_id = feed_of(core.catalog, row)
    name = next((one.name for one in core.catalog.feeds.values() if one.id == feed_id), None)
    if name is None:
        outcome.refused.append((row, f"changefeed {row['feed']}, whose event it is, was dropped"))
        return
    reason = feeds.replay(name, row)
    if reason is None:
        outcome.delivered.append(row)
    else:
        outcome.refused.append((row, reason))


def _sink(keyword: str) -> Sink:
    sink = SINKS.get(keyword)
    if sink is None:
        raise FeedError(
            f"a changefeed into {keyword.upper()} is not available",
            hint=f"there are {', '.join(one.keyword for one in SINKS.values())}",
        )
    return sink


def _redefine(loop: Loop, feed: Feed) -> None:
    loop.submit(Call({}, head={"feeds": [feed_definition(feed)]}))
