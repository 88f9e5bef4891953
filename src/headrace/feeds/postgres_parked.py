"""The events of a feed that were parked: their sequences and keys, a row for each in headrace_feed_parked.

A parked event may be sent again at any time, or never. It must not come over a later event of its key then: so a row of
this table goes when a later event of its key is written, and an event without a row has no effect. These rows are found
by an index; the feed's own row, which each batch reads and writes, does not grow with them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Cursor, sql

from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.postgres_rows import Lines
from headrace.feeds.postgres_target import Names
from headrace.state.hashing import identity

# A key is the hexadecimal form of 128 bits; earlier versions wrote those of a second key behind it. Versions before
# those wrote the key's own text, which no later event overtakes.
_KEY = re.compile(r"[0-9a-f]{32}")


def event_keys(lines: Lines) -> dict[int, str]:
    """Return the keys of the events that have lines, by the index of the event."""
    low, high = identity([lines.keys], len(lines))
    rows = zip(lines.events.tolist(), low.tolist(), high.tolist(), strict=True)
    return {event: f"{other:016x}{one:016x}" for event, one, other in rows}


@dataclass(frozen=True)
class ParkedEvents:
    """The rows of one feed in headrace_feed_parked."""

    names: Names
    feed_id: str

    def add(self, cursor: Cursor[Any], sequences: Collection[int], delivered: DeliveredSequences) -> None:
        """Add refused events, each with its key."""
        numbers = [number for number in sequences if number in delivered.refused]
        if not numbers:
            return
        found = [_KEY.match(delivered.refused[number]) for number in numbers]
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} (feed_id, sequence, target_key) SELECT %s, n, k "
                "FROM unnest(%s::bigint[], %s::uuid[]) AS added (n, k) ON CONFLICT DO NOTHING"
            ).format(self.names.parked),
            (self.feed_id, numbers, [key and key[0] for key in found]),
        )

    def find(self, cursor: Cursor[Any], sequences: Sequence[int]) -> set[int]:
        """Return those of some sequences whose events are parked, and not overtaken."""
        rows = cursor.execute(
            sql.SQL("SELECT sequence FROM {} WHERE feed_id = %s AND sequence = ANY (%s::bigint[])").format(
                self.names.parked
            ),
            (self.feed_id, list(sequences)),
        )
        return {row[0] for row in rows}

    def remove(self, cursor: Cursor[Any], sequences: Collection[int], newest: Mapping[str, int]) -> None:
        """Remove events that have come, and those that a later event of their key overtakes."""
        if sequences:
            cursor.execute(
                sql.SQL("DELETE FROM {} WHERE feed_id = %s AND sequence = ANY (%s::bigint[])").format(
                    self.names.parked
                ),
                (self.feed_id, list(sequences)),
            )
        if newest:
            cursor.execute(
                sql.SQL(
                    "DELETE FROM {} p USING unnest(%s::uuid[], %s::bigint[]) AS later (key, sequence) "
                    "WHERE p.feed_id = %s AND p.target_key = later.key AND p.sequence < later.sequence"
                ).format(self.names.parked),
                (list(newest), list(newest.values()), self.feed_id),
            )

    def clear(self, cursor: Cursor[Any]) -> None:
        """Remove all: a scan brings what came of them."""
        cursor.execute(sql.SQL("DELETE FROM {} WHERE feed_id = %s").format(self.names.parked), (self.feed_id,))
