"""The sources and changefeeds of a restored home: paused until somebody says that this home is to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.catalog.catalog import Catalog, Feed, Source, feed_definition, source_definition
from headrace.ledger.ledger import Head

# The error of a source or a changefeed that a restore paused.
PAUSED_BY_RESTORE = "restored from a backup; RESUME to run it here, or restore with --live"


def paused_head(heads: Sequence[Head]) -> Mapping[str, Any]:
    """Return the head of an epoch that pauses all sources and changefeeds that run by these heads; empty if none do."""
    sources: dict[str, Source] = {}
    feeds: dict[str, Feed] = {}
    for head in heads:
        for name in head.content.get("drop_sources", ()):
            sources.pop(name, None)
        for name in head.content.get("drop_feeds", ()):
            feeds.pop(name, None)
        sources.update({one["name"]: Source(**one) for one in head.content.get("sources", ())})
        feeds.update({one["name"]: Feed(**one) for one in head.content.get("feeds", ())})
    paused = {
        "sources": [
            source_definition(replace(one, state="Paused", error=PAUSED_BY_RESTORE))
            for one in sources.values()
            if one.state == "Running"
        ],
        "feeds": [
            feed_definition(replace(one, state="Paused", error=PAUSED_BY_RESTORE))
            for one in feeds.values()
            if one.state == "Running"
        ],
    }
    return {word: listed for word, listed in paused.items() if listed}


def paused_by_restore(catalog: Catalog) -> list[str]:
    """Return the sources and changefeeds that a restore paused, and that were not resumed since."""
    sources = [f"source {one.name}" for one in catalog.sources.values() if one.error == PAUSED_BY_RESTORE]
    return sources + [f"changefeed {one.name}" for one in catalog.feeds.values() if one.error == PAUSED_BY_RESTORE]
