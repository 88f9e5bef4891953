"""A feed whose sink is being opened or is open, with all that its definition comes to."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog.catalog import Feed, Relation
from headrace.feeds.batch import EventForm
from headrace.feeds.filter import RowFilter
from headrace.feeds.options import FeedOptions
from headrace.feeds.sink import Target


@dataclass(frozen=True)
class OpenFeed:
    """A feed with its options, its target, the relation that it delivers, and the compiled filter."""

    feed: Feed
    options: FeedOptions
    target: Target
    relation: Relation
    row_filter: RowFilter | None

    @property
    def form(self) -> EventForm:
        """Return the form of its events."""
        target, options = self.target, self.options
        return EventForm(
            target.feed, target.table, target.columns, target.key, options.include_old_values, options.envelope
        )
