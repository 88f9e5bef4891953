"""The events of a feed that were parked: their sequences and keys, a row for each in headrace_feed_parked.

A parked event may be sent again at any time, or never. It must not come over a later row of its key then: so a row of
this table goes when a later event of its key is written, and an event without a row has no effect. These rows are found
by an index; the feed's own row, which each batch reads and writes, does not grow with them.

An event has two keys: the one under which its row is written in the target, and that of its row in the relation. Later
events that write a row under the first key, or are of the second, overtake it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Cursor, sql

from headrace.feeds.batch import Batch
from headrace.feeds.cursor import key_identities
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.postgres_rows import Lines
from headrace.feeds.postgres_target import Names
from headrace.state.hashing import identity

# A key is the hexadecimal form of 128 bits. Earlier versions wrote the key's own text, which no later event overtakes.
_DIGITS = 32
_KEYS = re.compile(rf"[0-9a-f]{{{2 * _DIGITS}}}")


@dataclass(frozen=True)
class EventKeys:
    """The keys of a batch's events that were refused, and the last sequence of each key that was written."""

    refused: dict[int, str] = field(default_factory=dict[int, str])
    targets: dict[str, int] = field(default_factory=dict[str, int])
    owners: dict[str, int] = field(default_factory=dict[str, int])

    def newest(self, delivered: DeliveredSequences) -> dict[str, int]:
        """Return for the keys of events that were refused before the last sequence that overtakes them."""
        return {
            key: max(self.targets.get(key[:_DIGITS], -1), self.owners.get(key[_DIGITS:], -1))
            for key in delivered.refused.values()
        }


def event_keys(batch: Batch, lines: Lines, refused: Collection[int]) -> EventKeys:
    """Return the keys of the events that have lines."""
    low, high = identity([lines.keys], len(lines))
    owners = [_digits(*pair) for pair in key_identities(batch.rows, batch.key)]
    numbers = batch.sequences
    keys = EventKeys()
    rows = zip(lines.events.tolist(), lines.gone.tolist(), low.tolist(), high.tolist(), strict=True)
    for event, gone, one, other in rows:
        target, owner, number = _digits(one, other), owners[event], numbers[event]
        if event in refused:
            # The line that writes its row comes last.
            keys.refused[event] = target + owner
            continue
        keys.owners[owner] = max(keys.owners.get(owner, -1), number)
        if not gone:
            keys.targets[target] = max(keys.targets.get(target, -1), number)
    return keys


@dataclass(frozen=True)
class ParkedEvents:
    """The rows of one feed in headrace_feed_parked."""

    names: Names
    feed_id: str

    def add(self, cursor: Cursor[Any], sequences: Collection[int], delivered: DeliveredSequences) -> None:
        """Add refused events, each with its keys."""
        numbers = [number for number in sequences if number in delivered.refused]
        if not numbers:
            return
        found = [_KEYS.fullmatch(delivered.refused[number]) for number in numbers]
        targets, owners = (
            [keys[0][part] if keys else None for keys in found] for part in (slice(_DIGITS), slice(_DIGITS, None))
        )
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} (feed_id, sequence, target_key, owner_key) SELECT %s, n, t, o "
                "FROM unnest(%s::bigint[], %s::uuid[], %s::uuid[]) AS added (n, t, o) ON CONFLICT DO NOTHING"
            ).format(self.names.parked),
            (self.feed_id, numbers, targets, owners),
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

    def remove(self, cursor: Cursor[Any], sequences: Collection[int], keys: EventKeys) -> None:
        """Remove events that have come, and those that later events overtake."""
        if sequences:
            cursor.execute(
                sql.SQL("DELETE FROM {} WHERE feed_id = %s AND sequence = ANY (%s::bigint[])").format(
                    self.names.parked
                ),
                (self.feed_id, list(sequences)),
            )
        for column, newest in (("target_key", keys.targets), ("owner_key", keys.owners)):
            if newest:
                cursor.execute(
                    sql.SQL(
                        "DELETE FROM {} p USING unnest(%s::uuid[], %s::bigint[]) AS later (key, sequence) "
                        "WHERE p.feed_id = %s AND p.{} = later.key AND p.sequence < later.sequence"
                    ).format(self.names.parked, sql.Identifier(column)),
                    (list(newest), list(newest.values()), self.feed_id),
                )

    def clear(self, cursor: Cursor[Any]) -> None:
        """Remove all: a scan brings what came of them."""
        cursor.execute(sql.SQL("DELETE FROM {} WHERE feed_id = %s").format(self.names.parked), (self.feed_id,))


def _digits(low: int, high: int) -> str:
    return f"{high:016x}{low:016x}"
