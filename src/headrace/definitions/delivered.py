"""Relations that changefeeds deliver: dropped only together with the changefeeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from headrace.catalog.catalog import Catalog, Feed
from headrace.errors import RelationNameError


def feeds_to_drop(catalog: Catalog, names: Collection[str], written: str, cascade: bool) -> list[Feed]:
    """Return the changefeeds that deliver some relations; without CASCADE, raise an error where there are any."""
    feeds = [one for one in catalog.feeds.values() if one.table in names]
    if feeds and not cascade:
        listed = ", ".join(one.name for one in feeds)
        raise RelationNameError(
            f"{written.rpartition(' ')[2]} is in use",
            detail=f"It is delivered by changefeed{'s' if len(feeds) > 1 else ''} {listed}.",
            hint=f"write {written} CASCADE to drop {'them' if len(feeds) > 1 else 'the changefeed'} too, or DROP "
            f"CHANGEFEED {feeds[0].name} first",
        )
    return feeds


def dropped_feeds(feeds: Sequence[Feed]) -> Mapping[str, list[str]]:
    """Return the part of an epoch's head that drops changefeeds; empty if there are none."""
    return {"drop_feeds": [one.name for one in feeds]} if feeds else {}
