"""What feeds have told is held against the relations: nothing missing, in order, equal at every resolved mark."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.checks.feed_lives import Life, set_mood
from tests.checks.feed_places import FILTER, KEYS_OF, Place

_SETTLE_SECONDS = 240.0
Line = Mapping[str, Any]
# The rows of each key.
Rows = dict[str, list[Any]]


def judged(hr: Any, life: Life) -> dict[str, Any]:
    """Have all told by sinks that are well, and say what is wrong with it."""
    for place in life.places:
        set_mood(life, place.name, "well")
        hr.execute(f"RESUME CHANGEFEED {place.name}")
    until = time.monotonic() + _SETTLE_SECONDS
    while True:
        shown = {one["name"]: one for one in hr.execute("SHOW CHANGEFEEDS").to_pylist()}
        # To park an event makes an epoch, so there may be one more to be told.
        if all(one["lag"] == 0 and not one["waiting"] and one["state"] == "Running" for one in shown.values()):
            break
        if time.monotonic() > until:
            return {**_nothing(), "faults": [f"it did not settle: {shown}"]}
        time.sleep(0.05)
    for place in life.places:
        hr.execute(f"PAUSE CHANGEFEED {place.name}")
    shown = {one["name"]: one for one in hr.execute("SHOW CHANGEFEEDS").to_pylist()}
    found = _nothing()
    parked = hr.query("SELECT * FROM parked_events").to_pylist()
    found["parked"] = len(parked)
    for place in life.places:
        mine = {one["sequence"]: one["key"] for one in parked if one["feed"] == place.name}
        unwanted = {json.dumps(json.loads(key)) for key in mine.values()}
        if place.sink in ("POSTGRES", "REDIS", "DYNAMODB"):
            faults = _judge_table(hr, life, place, unwanted, shown[place.name], found)
        else:
            faults = _judge_events(hr, life, place, mine, unwanted, shown[place.name], found)
        found["faults"] += [f"{place.name}: {fault}" for fault in faults]
    return found


def _nothing() -> dict[str, Any]:
    return {"events": Counter[str](), "twice": Counter[str](), "parked": 0, "marks": 0, "resets": 0, "faults": []}


def _judge_events(
    hr: Any,
    life: Life,
    place: Place,
    parked: Mapping[int, str],
    unwanted: set[str],
    shown: Mapping[str, Any],
    found: dict[str, Any],
) -> list[str]:
    """What is wrong with what came to a place that keeps all events."""
    streams = _arrived(life, place, shown["id"])
    # What has no key goes to every partition, and is one event nevertheless.
    events = [
        one
        for number, lines in enumerate(streams)
        for one in lines
        if "operation" in one and (one["operation"] != "RESET" or not number)
    ]
    twice = len(events) - len({one["sequence"] for one in events})
    found["events"][place.name], found["twice"][place.name] = len(events), twice
    found["resets"] += sum(one["operation"] == "RESET" for one in events)
    faults = [*_gaps(events, shown["last_sequence"], set(parked)), *_unstable(events)]
    late = life.late and not place.exact
    faults += [] if late else [fault for lines in streams for fault in _disorder(lines)]
    if place.exact and twice:
        faults.append(f"{twice} events came twice to a sink that knows its mark")
    condition = FILTER if place.name == "some" else ""
    marks, wrong = _unequal(hr, streams, place.relation, unwanted, condition, late)
    found["marks"] += marks
    return [*faults, *wrong]


def _arrived(life: Life, place: Place, feed_id: str) -> list[list[Line]]:
    """All that a place was told, in the order of its arrival; several where it keeps an order in each part alone."""
    path = life.folder / place.name
    if place.sink == "FILES":
        return [_files(path, f"{place.name}-{feed_id[:8]}.resolved.json")]
    if place.sink == "KAFKA":
        return _topic(life, place)
    found: list[Line] = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        # A line that a kill cut short never arrived.
        with suppress(ValueError):
            found.append(json.loads(line))
    return [found]


def _files(folder: Path, resolved: str) -> list[Line]:
    lines = [line for path in sorted(folder.glob("*.ndjson")) for line in path.read_text().splitlines()]
    found: list[Line] = [json.loads(line) for line in lines]
    if (folder / resolved).exists():
        told = json.loads((folder / resolved).read_text())
        upto = [index for index, one in enumerate(found) if one["sequence"] <= told["sequence"]]
        found.insert(upto[-1] + 1 if upto else 0, {"resolved": told["epoch"], "upto": told["sequence"]})
    return found


def _topic(life: Life, place: Place) -> list[list[Line]]:
    """What a reader sees: of the feed with transactions, what is committed."""
    from tests.kafka_reading import committed

    isolation = "read_committed" if place.exact else "read_uncommitted"
    streams: dict[int, list[Line]] = {number: [] for number in range(2)}
    for message in committed(life.servers, f"{life.servers.topic}-{place.name}", isolation):
        streams[message.partition()].append(json.loads(message.value()))
    return list(streams.values())


def _gaps(events: Sequence[Line], last: int, parked: set[int]) -> list[str]:
    """What is missing; a RESET says that all before it does not count.

    So numbers jump there, and an event that was refused and waited when it came is never told.
    """
    told = {one["sequence"] for one in events} | parked
    resets = {one["sequence"] for one in events if one["operation"] == "RESET"}
    anew = max(resets, default=0)
    faults: list[str] = []
    expected = 1
    for sequence in sorted(told):
        if sequence != expected and sequence not in resets and sequence > anew:
            faults.append(f"events {expected} to {sequence - 1} are missing")
        expected = sequence + 1
    if expected - 1 < last:
        faults.append(f"events {expected} to {last} are missing at the end")
    return faults


def _unstable(events: Sequence[Line]) -> list[str]:
    known: dict[int, Line] = {}
    for one in events:
        if known.setdefault(one["sequence"], one) != one:
            return [f"{one['sequence']} stands for {known[one['sequence']]} and for {one}"]
    return []


def _disorder(lines: Sequence[Line]) -> list[str]:
    """Events of a key that came before an earlier one, also when they were told again; a RESET begins anew."""
    known: dict[str, set[int]] = {}
    for one in lines:
        if "operation" in one:
            known.setdefault(json.dumps(one["key"]), set()).add(one["sequence"])
    ordered = {key: sorted(numbers) for key, numbers in known.items()}
    last: dict[str, int] = {}
    begun = 0
    for one in lines:
        if "operation" not in one:
            continue
        key, sequence = json.dumps(one["key"]), one["sequence"]
        if one["operation"] == "RESET":
            last, begun = {}, sequence
            continue
        before = last.get(key, begun)
        following = bisect_right(ordered[key], before)
        if following < len(ordered[key]) and sequence > ordered[key][following]:
            return [f"{sequence} of key {key} came after {before}, before one in between"]
        last[key] = sequence
    return []


class _Reader:
    """Rebuilds a table from the events of a feed, or of a part of it."""

    def __init__(self, lines: Sequence[Line], counts: bool, once: bool) -> None:
        self._lines = lines
        # Rows without a key are counted, and so each event is to be taken once.
        self._counts, self._once = counts, once or counts
        self._taken: set[int] = set()
        self._next = 0
        self.rows: Rows = {}

    def read_to(self, index: int) -> None:
        for one in self._lines[self._next : index]:
            if "operation" in one:
                self._take(one)
        self._next = max(self._next, index)

    def _take(self, one: Line) -> None:
        repeated = self._once and one["sequence"] in self._taken
        self._taken.add(one["sequence"])
        key = json.dumps(one["key"])
        if one["operation"] == "RESET":
            self.rows.clear()
        elif repeated:
            return
        elif one["operation"] == "DELETE":
            self.rows[key] = self.rows.get(key, [])[1:]
        else:
            self.rows[key] = [*(self.rows.get(key, []) if self._counts else []), one["new_row"]]


def _cuts(streams: Sequence[Sequence[Line]], late: bool) -> list[tuple[int, list[int]]]:
    """Each resolved mark, and up to where it speaks of each part.

    Where there are several parts, or an owner that was replaced woke up, a mark may come late to one of them: it counts
    where it first stands in all, each time with nothing before it that has a higher number, as a reader would tell.
    """
    if len(streams) == 1 and not late:
        return [(one["resolved"], [index]) for index, one in enumerate(streams[0]) if "resolved" in one]
    first: list[dict[int, int]] = [{} for _ in streams]
    for found, lines in zip(first, streams, strict=True):
        highest = 0
        for index, one in enumerate(lines):
            number = one["upto"] if "upto" in one else one["sequence"]
            if "resolved" in one and number >= highest:
                found.setdefault(one["resolved"], index)
            highest = max(highest, number)
    cuts: list[tuple[int, list[int]]] = []
    for epoch in sorted(set(first[0]).intersection(*first[1:])):
        indexes = [found[epoch] for found in first]
        if not cuts or all(now >= before for now, before in zip(indexes, cuts[-1][1], strict=True)):
            cuts.append((epoch, indexes))
    return cuts


def _unequal(
    hr: Any, streams: Sequence[Sequence[Line]], relation: str, parked: set[str], condition: str, late: bool
) -> tuple[int, list[str]]:
    """How many resolved marks there are, and where the table that is rebuilt is not what the relation was."""
    readers = [_Reader(lines, relation == "b", late) for lines in streams]
    cuts = _cuts(streams, late)
    for marks, (epoch, indexes) in enumerate(cuts, 1):
        for reader, index in zip(readers, indexes, strict=True):
            reader.read_to(index)
        wanted = _without(_held(hr, relation, epoch, condition), parked)
        # What is parked was not told, whatever the receiver has of it.
        told = _without({key: rows for one in readers for key, rows in one.rows.items()}, parked)
        if told != wanted:
            return marks, [f"at epoch {epoch} the feed gives {told}, and {relation} had {wanted}"]
    return len(cuts), []


def _held(hr: Any, relation: str, epoch: int | None, condition: str = "") -> Rows:
    held: Rows = {}
    for row in hr.query(f"SELECT * FROM {relation}", epoch=epoch).to_pylist():
        if not condition or row["n"] % 2 == 0:
            held.setdefault(json.dumps({name: row[name] for name in KEYS_OF[relation]}), []).append(row)
    return held


def _without(rows: Rows, parked: set[str]) -> Rows:
    return {key: these for key, these in rows.items() if these and key not in parked}


def _judge_table(
    hr: Any, life: Life, place: Place, parked: set[str], shown: Mapping[str, Any], found: dict[str, Any]
) -> list[str]:
    """What is wrong with a place that keeps rows: as it was seen at each mark, and as it is now."""
    seen = [one for one in _seen(life, place) if one["settled"]]
    found["events"][place.name] = shown["events_delivered"]
    if place.name == "heap":
        return _judge_heap(hr, seen[-1]["rows"], shown["id"])
    found["twice"][place.name] = 0
    for number, one in enumerate(seen):
        # Of the last epoch a part may be told, unless the mark says that it is all.
        part = one["event"] > 0 and number < len(seen) - 1
        epochs = [one["epoch"], one["epoch"] - 1] if part else [one["epoch"]]
        wanted = [_without(_held(hr, place.relation, epoch), parked) for epoch in epochs if epoch > 0]
        told = _without(_by_key(one["rows"], place), parked)
        keys = {*told, *(key for rows in wanted for key in rows)}
        wrong = [key for key in keys if not any(_same(told.get(key), rows.get(key), place) for rows in wanted)]
        if wrong:
            return [f"of {wrong} it has at {one['epoch']}, {one['event']}: {told}, and {place.relation} had {wanted}"]
        found["marks"] += 1
    return []


def _seen(life: Life, place: Place) -> list[dict[str, Any]]:
    """What the place held whenever somebody looked, and what it holds now."""
    from dataclasses import asdict

    import psycopg
    import redis

    from tests.checks.feed_servers import look_at_dynamodb, look_at_postgres, look_at_redis

    path = life.folder / "seen.json"
    before = json.loads(path.read_text()) if path.exists() else []
    if place.sink == "REDIS":
        with redis.Redis.from_url(life.servers.redis) as client:
            now = look_at_redis(client, life.servers)
    elif place.sink == "DYNAMODB":
        now = look_at_dynamodb(life.servers)
    else:
        with psycopg.connect(life.servers.postgres) as connection:
            now = look_at_postgres(connection, life.servers, place.name)
    assert now is not None, f"{place.name} knows nothing of the feed"
    # All is told by now, whatever was refused.
    return [*(one for one in before if one["place"] == place.name), {**asdict(now), "settled": True}]


def _by_key(rows: Sequence[Mapping[str, Any]], place: Place) -> Rows:
    names = KEYS_OF[place.relation]
    found: Rows = {}
    for row in rows:
        key = {name: row.get(name) for name in names}
        if place.sink == "REDIS" and place.relation == "t":
            key = {name: int(value) for name, value in key.items() if value is not None}
        found.setdefault(json.dumps(key), []).append(row)
    return found


def _same(told: list[Any] | None, wanted: list[Any] | None, place: Place) -> bool:
    """Whether a row is there as it should be; columns that the relation had before may still stand in a table."""
    if not told or not wanted:
        return not told and not wanted
    if len(told) != 1 or len(wanted) != 1:
        return False
    expected = wanted[0]
    if place.sink == "REDIS":
        return told[0] == {name: str(value) for name, value in expected.items() if value is not None}
    return all(told[0].get(name) == value for name, value in expected.items())


def _judge_heap(hr: Any, rows: Sequence[Mapping[str, Any]], feed_id: str) -> list[str]:
    """Rows that were only added: those of the last scan and all that came since, each as often as it came.

    A later scan than the first adds what the table lacks, and leaves what earlier scans and changes have added.
    """
    from headrace.feeds.progress import ProgressFiles
    from headrace.reading.following import Changes

    progress = ProgressFiles(hr.core.path, feed_id).read()
    assert progress is not None
    assert progress.scan_epoch is not None
    wanted = Counter(json.dumps(row) for rows in _held(hr, "b", progress.scan_epoch).values() for row in rows)
    position = hr.core.following.begin("b", progress.scan_epoch)
    while True:
        step = hr.core.following.step(position)
        for one in step.epochs if isinstance(step, Changes) else ():
            kinds = one.kinds.to_pylist()
            wanted.update(
                json.dumps(row) for row, kind in zip(one.rows.to_pylist(), kinds, strict=True) if kind == "insert"
            )
        if step.position.epoch == position.epoch:
            break
        position = step.position
    told = Counter(json.dumps(row) for row in rows)
    is_first = progress.scan_epoch == hr.core.catalog.feed("heap").begins_after
    return (
        []
        if told == wanted or (not is_first and told >= wanted)
        else [f"it has {told - wanted} too many, and lacks {wanted - told}"]
    )
