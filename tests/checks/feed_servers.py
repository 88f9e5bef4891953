"""The real servers of the check of feeds, one set for all seeds; what stands in them is looked at while they work."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, LiteralString, cast

import boto3
import psycopg
import redis
from moto.server import ThreadedMotoServer
from psycopg import sql

from headrace import local
from headrace.feeds.batch import Mark
from headrace.local.kafka import admin_of
from tests.checks.feed_places import MOST_BYTES, UNWANTED, Addresses, mood_of
from tests.redis_server import MISSING, PROGRAM, RedisServer

_LOOK_SECONDS = 0.03
# A server that is killed is no news.
logging.getLogger("psycopg").setLevel(logging.ERROR)
logging.getLogger("werkzeug").setLevel(logging.ERROR)
_SCRIPT = """
local rows = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do rows[#rows + 1] = {name, redis.call('HGETALL', name)} end
local states = redis.call('KEYS', 'headrace:feed:*')
for _, name in ipairs(states) do
  if redis.call('TYPE', name).ok == 'string' then return {redis.call('GET', name), rows} end
end
return {false, rows}
"""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Report no connection that a killed process has left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]


class HookServer:
    """A receiver of webhooks: it appends events to the file that the path names, and has the mood of that file."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _HookHandler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HookServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _HookHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    dice = Random()

    def do_POST(self) -> None:
        path, mood = Path(self.path), mood_of(Path(self.path))
        events = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if mood == "slow":
            time.sleep(self.dice.uniform(0, 0.1))
        fails = mood == "fails" and self.dice.random() < 0.5
        if mood == "down" or (fails and self.dice.random() < 0.5):
            return self._answer(503)
        if mood == "refuses" and any((one.get("key") or {}).get("id") == UNWANTED for one in events):
            return self._answer(422)
        lines = [{"resolved": one["resolved"], "upto": one["sequence"]} if "resolved" in one else one for one in events]
        with suppress(FileNotFoundError), open(path, "ab", buffering=0) as file:
            file.write(b"".join(json.dumps(one).encode() + b"\n" for one in lines))
        return self._answer(500 if fails else 200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


@contextmanager
def _dynamodb() -> Iterator[str]:
    """Moto's server, and its URL."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "moto", "AWS_SECRET_ACCESS_KEY": "moto"}
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class RealServers:
    """A broker, a PostgreSQL, a receiver of webhooks, moto in place of DynamoDB and, where it is installed, a Redis."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._servers = self._undo.enter_context(local.start(connect=False))
        self._hooks = self._undo.enter_context(HookServer())
        self._dynamodb = self._undo.enter_context(_dynamodb())
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
            for topic, partitions in (("kafka", 2), ("once", 2)):
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
        hooks = self._hooks.url if dice.random() < 0.5 else ""
        items = self._dynamodb if dice.random() < 0.3 else ""
        return Addresses(broker, name if kafka else "", dsn if postgres else "", name, url, hooks, items)

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
    table = place if place in ("heap", "logins") else "rows"
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


def look_at_dynamodb(addresses: Addresses) -> Seen | None:
    """What a table of DynamoDB holds, while nobody writes to it."""
    resource: Any = boto3.resource("dynamodb", "eu-north-1", endpoint_url=addresses.dynamodb)
    items = resource.Table(addresses.schema).scan(ConsistentRead=True)["Items"]
    (feed_id,) = {one["_feed"] for one in items} or {None}
    if feed_id is None:
        return Seen("items", 0, 0, 0, True, [])
    kept = resource.Table("headrace_feeds").get_item(Key={"feed_id": feed_id}, ConsistentRead=True)["Item"]
    mark = json.loads(kept["state"])["mark"]
    rows = [{name: _plain(value) for name, value in one.items() if not name.startswith("_")} for one in items]
    return Seen("items", mark["epoch"], mark["event"], mark["sequence"], True, rows)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value


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
                    for place in ("postgres", "heap", "logins"):
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
