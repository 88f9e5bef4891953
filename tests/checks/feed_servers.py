"""The real servers of the check of feeds, one set for all seeds; what stands in them is looked at while they work."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, LiteralString, cast

import psycopg
import redis
from psycopg import sql

from headrace import local
from headrace.feeds.batch import Mark
from headrace.local.kafka import admin_of
from tests.checks.feed_places import MOST_BYTES, UNWANTED, Addresses
from tests.redis_server import MISSING, PROGRAM, RedisServer

_LOOK_SECONDS = 0.03
# A server that is killed is no news.
logging.getLogger("psycopg").setLevel(logging.ERROR)
_SCRIPT = """
local rows = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do rows[#rows + 1] = {name, redis.call('HGETALL', name)} end
local states = redis.call('KEYS', 'headrace:feed:*')
for _, name in ipairs(states) do
  if redis.call('TYPE', name).ok == 'string' then return {redis.call('GET', name), rows} end
end
return {false, rows}
"""


class RealServers:
    """A broker, a PostgreSQL and, where it is installed, a Redis."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._servers = self._undo.enter_context(local.start(connect=False))
        self._redis: RedisServer | None = None
        self.missing = "" if PROGRAM else MISSING
        if PROGRAM is not None:
            folder = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
            self._undo.callback(shutil.rmtree, folder, ignore_errors=True)
            self._redis = self._undo.enter_context(RedisServer(folder))

    def close(self) -> None:
        self._undo.close()

    def addresses(self, dice: Random) -> Addresses:
        """Places for one seed; most have some servers and not others, so that each is tried alone, too."""
        name = f"s{uuid.uuid4().hex[:12]}"
        kafka, postgres, store = dice.random() < 0.6, dice.random() < 0.7, dice.random() < 0.5
        if kafka:
            for topic, partitions in (("kafka", 2), ("once", 1)):
                self._servers.create_topic(f"{name}-{topic}", partitions, {"max.message.bytes": str(MOST_BYTES)})
        dsn = self._servers.postgres_dsn
        if postgres:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        url = self._redis.url if self._redis is not None and store else ""
        if self._redis is not None and url:
            with redis.Redis(port=self._redis.port) as client:
                client.flushall()
        broker = self._servers.bootstrap if kafka else ""
        return Addresses(broker, name if kafka else "", dsn if postgres else "", name, url)

    def forget(self, addresses: Addresses) -> None:
        """Take away what a seed has left."""
        if addresses.topic:
            names = [f"{addresses.topic}-{one}" for one in ("kafka", "once", "once.progress")]
            asked = admin_of(addresses.bootstrap)
            for one in asked.delete_topics(names, operation_timeout=10).values():
                with suppress(Exception):
                    one.result(10)
        if addresses.postgres:
            with psycopg.connect(addresses.postgres, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(addresses.schema)))

    def restarts(self, addresses: Addresses, dice: Random) -> list[tuple[str, Callable[[], None]]]:
        """The servers that are killed and started again in a seed; a broker takes seconds, so it is not always."""
        found: list[tuple[str, Callable[[], None]]] = []
        if addresses.bootstrap and dice.random() < 0.15:
            found.append(("broker", self._servers.restart_broker))
        if addresses.postgres and dice.random() < 0.3:
            found.append(("PostgreSQL", self._servers.restart_postgres))
        if addresses.redis and self._redis is not None and dice.random() < 0.3:
            found.append(("Redis", self._redis.restart))
        return found


def set_wanted(addresses: Addresses, wanted: bool) -> None:
    """Have PostgreSQL itself refuse rows of a key, or take them again."""
    change = "DROP CONSTRAINT IF EXISTS unwanted"
    if not wanted:
        change = f"ADD CONSTRAINT unwanted CHECK (id <> {UNWANTED}) NOT VALID"
    query = sql.SQL(cast(LiteralString, f"ALTER TABLE {{}}.rows {change}")).format(sql.Identifier(addresses.schema))
    # The table may not be there yet, the server may be down, and the constraint may be there already.
    with suppress(psycopg.Error), psycopg.connect(addresses.postgres, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        connection.execute(query)


@dataclass(frozen=True)
class Seen:
    """What a place held at an instant, together with how far it said that the feed was."""

    place: str
    epoch: int
    event: int
    sequence: int
    # Whether all that it holds is of events up to there.
    settled: bool
    rows: list[dict[str, Any]]

    @property
    def mark(self) -> Mark:
        """Return the position."""
        return Mark.stored(self.epoch, self.event, self.sequence)


def look_at_postgres(connection: psycopg.Connection[Any], addresses: Addresses, place: str) -> Seen | None:
    """One place of a PostgreSQL, as of one instant."""
    table = "heap" if place == "heap" else "rows"
    names = sql.Identifier(addresses.schema, table), sql.Identifier(addresses.schema, "headrace_feeds")
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(
            sql.SQL("SELECT epoch, event, sequence, told, scan FROM {} WHERE feed = %s").format(names[1]), (place,)
        )
        row = cursor.fetchone()
        if row is None or row[0] is None:
            return None
        cursor.execute(sql.SQL("SELECT * FROM {}").format(names[0]))
        columns = [one.name for one in cursor.description or ()]
        rows = [dict(zip(columns, one, strict=True)) for one in cursor.fetchall()]
    epoch, event, sequence, told, scan = row
    return Seen(place, epoch, event, sequence, scan is None and _is_settled(told, sequence), rows)


def look_at_redis(client: Any, addresses: Addresses) -> Seen | None:
    """What a Redis holds, as of one instant."""
    state, found = client.eval(_SCRIPT, 0, f"{addresses.schema}:*")
    if not state:
        return None
    told = json.loads(state)
    if told["mark"] is None:
        return None
    rows = [_hash(one) for _, one in found]
    mark = told["mark"]
    settled = not told["scanning"] and _is_settled(told["told"], mark["sequence"])
    return Seen("redis", mark["epoch"], mark["event"], mark["sequence"], settled, rows)


def _is_settled(told: str, sequence: int) -> bool:
    highest = json.loads(told)[0] if told else None
    return highest is not None and highest <= sequence


def _hash(fields: list[bytes]) -> dict[str, str]:
    texts = [one.decode() for one in fields]
    return dict(zip(texts[::2], texts[1::2], strict=True))


@dataclass
class Watch:
    """Looks at PostgreSQL and Redis again and again while homes live and die."""

    addresses: Addresses
    seen: list[Seen] = field(default_factory=list[Seen])

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._postgres, self._redis)]

    def __enter__(self) -> Watch:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for one in self._threads:
            one.join(30)

    def went_back(self) -> list[str]:
        """Where a place was less far than it had been."""
        furthest: dict[str, Seen] = {}
        faults: list[str] = []
        for one in self.seen:
            before = furthest.setdefault(one.place, one)
            if one.mark < before.mark:
                faults.append(f"{one.place} went from {before} back to {one}")
            furthest[one.place] = one
        return faults

    def _postgres(self) -> None:
        while self.addresses.postgres and not self._ended.is_set():
            with suppress(psycopg.Error), psycopg.connect(self.addresses.postgres) as connection:
                while not self._ended.wait(_LOOK_SECONDS):
                    for place in ("postgres", "heap"):
                        with suppress(psycopg.errors.UndefinedTable):
                            self._note(look_at_postgres(connection, self.addresses, place))
            self._ended.wait(_LOOK_SECONDS)

    def _redis(self) -> None:
        while self.addresses.redis and not self._ended.wait(_LOOK_SECONDS):
            with suppress(redis.RedisError), redis.Redis.from_url(self.addresses.redis) as client:
                while not self._ended.wait(_LOOK_SECONDS):
                    self._note(look_at_redis(client, self.addresses))

    def _note(self, seen: Seen | None) -> None:
        last = next((one for one in reversed(self.seen) if seen is not None and one.place == seen.place), None)
        if seen is not None and seen != last:
            self.seen.append(seen)
