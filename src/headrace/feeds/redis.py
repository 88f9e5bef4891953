"""INTO REDIS: a hash for each key, and how far the feed is, in one MULTI ... EXEC with what was written.

The state of a feed is watched while a batch is made ready: if somebody else changes it meanwhile, nothing is written.
So is the record of the feed that owns the hashes: each prefix has one, which alone writes and removes them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import orjson
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.errors import FeedError
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.keyed import KeyedEvents, Parked, keys_of, refused_by_key
from headrace.feeds.keyed_state import State
from headrace.feeds.sink import Delivery, EventsRefused, SinkUnavailable, Target
from headrace.feeds.sink_owner import SinkOwner, check_take_over, refuse_former, refuse_second
from headrace.json_forms import json_column

T = TypeVar("T")

_EXAMPLE = "redis://host:6379/0"
_SCAN_COUNT = 1_000
_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\*?[]^-"})
# A server that says nothing for so long is away; a client that tried again by itself would wait for it several times.
_ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
# The largest value, where the server does not say what its proto-max-bulk-len is.
_MOST_BYTES = 512 * 1024 * 1024
# Parameters of a URL that the client takes, but for those that name another server.
_PARAMETERS = frozenset(
    {
        *("db", "client_name", "health_check_interval", "max_connections", "protocol", "retry_on_timeout"),
        *("socket_connect_timeout", "socket_keepalive", "socket_read_size", "socket_timeout", "timeout"),
        *("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers"),
        *("ssl_keyfile", "ssl_min_version", "username", "password"),
    }
)


class RedisDelivery:
    """An open Redis."""

    keeps_marks = keeps_epochs_whole = True
    tells_resets = False

    def __init__(self, target: Target) -> None:
        self._target = target
        self._prefix = _prefix_of(target)
        self._ttl = _ttl(target)
        self._owner_key = _owner_key(target)
        self._state_key, self._scan_key, self._parked_key = _names_of(target.feed_id)
        self._client = _client(target)
        # The last position that was read or written.
        self._sequence = 0
        try:
            self._take_over()
            self._most_bytes = self._largest_value()
        except BaseException:
            self.close()
            raise

    def known_mark(self) -> Mark | None:
        """Return the mark that Redis keeps."""
        with _failures_as_unavailable():
            return self._owned(self._client).mark

    def deliver(self, batch: Batch) -> None:
        """Write the newest row of each key, and how far the feed is, all at once."""
        refused = self._change(
            lambda state, parked, pipe: self._write(batch, state, parked, pipe),
            lambda state: keys_of(batch) if state.has_parked else (),
        )
        if refused:
            raise EventsRefused(refused)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Keep that all up to a mark was delivered."""
        self._change(lambda state, _, __: (state.at(mark), None))

    def give_up(self, sequences: Collection[int]) -> None:
        """Move refused events, which are parked by now, from the feed's state to a hash of which batches read parts."""

        def move(state: State, parked: Parked, pipe: Any) -> tuple[State, None]:
            found = refused_by_key(state.told, sequences)
            for key, numbers in found.items():
                pipe.hset(self._parked_key, key, json.dumps(sorted({*parked.get(key, ()), *numbers})))
            told = state.told.give_up(sequences)
            return replace(state, told=told, has_parked=state.has_parked or bool(found)), None

        self._change(move, lambda state: refused_by_key(state.told, sequences))

    def begin_scan(self, columns: StructType) -> None:
        """Remember from here on which keys are written."""

        def begin(state: State, _: Parked, pipe: Any) -> tuple[State, None]:
            pipe.unlink(self._scan_key, self._parked_key)
            return state.begin_scan(), None

        self._change(begin)

    def end_scan(self, mark: Mark) -> None:
        """Remove the hashes of the prefix that the scan has not written, some at a time, and then forget the scan."""
        with _failures_as_unavailable():
            scanning = self._owned(self._client).scan_after is not None
            cursor = 0
            while scanning:
                cursor, keys = self._client.scan(cursor, self._prefix.decode().translate(_SPECIAL) + '{"*', _SCAN_COUNT)
                written = self._client.smismember(self._scan_key, keys) if keys else []
                stale = [key for key, known in zip(keys, written, strict=True) if not known]
                if stale:
                    self._change(lambda state, _, pipe, stale=stale: (pipe.unlink(*stale) and state, None))
                scanning = cursor != 0

        def end(state: State, _: Parked, pipe: Any) -> tuple[State, None]:
            pipe.unlink(self._scan_key)
            return state.end_scan(mark), None

        self._change(end)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _write(self, batch: Batch, state: State, parked: Parked, pipe: Any) -> tuple[State, dict[int, str]]:
        state.refuse_loss(batch, "Redis")
        events = KeyedEvents.of(batch, state.told, parked)
        rows = _Rows(batch, events.written.values())
        events.refuse_all(lambda index: self._reason_to_refuse(batch, rows, index))
        for key, index in events.written.items():
            name = self._prefix + key.encode()
            pipe.unlink(name)
            if batch.operations[index] != "DELETE":
                pipe.hset(name, mapping=rows[index])
                if self._ttl is not None:
                    pipe.expire(name, self._ttl)
                if state.scan_after is not None:
                    pipe.sadd(self._scan_key, name)
        for key in parked:
            left = events.still_parked(key)
            if left:
                pipe.hset(self._parked_key, key, json.dumps(left))
            else:
                pipe.hdel(self._parked_key, key)
        told = events.delivered(state.told, events.events)
        return replace(state.at(batch.mark_without(events.refused)), told=told), events.refused

    def _reason_to_refuse(self, batch: Batch, rows: _Rows, index: int) -> str | None:
        if batch.operations[index] == "DELETE":
            return None
        size = max(map(_size, rows[index].values()))
        if size <= self._most_bytes:
            return None
        return f"a value of it has {size:,} bytes, and this Redis takes {self._most_bytes:,}"

    def _largest_value(self) -> int:
        """Return how many bytes a value may have; a server that does not tell its settings has the usual one."""
        redis = _library()
        try:
            with _failures_as_unavailable(redis.ResponseError):
                return int(self._client.config_get("proto-max-bulk-len")["proto-max-bulk-len"])
        except (redis.ResponseError, KeyError, ValueError):
            return _MOST_BYTES

    def _take_over(self) -> None:
        """Become the owner of the prefix and of the feed: from now on, whoever was that before ends."""
        redis, target = _library(), self._target
        with _failures_as_unavailable():
            while True:
                with self._client.pipeline(transaction=True) as pipe:
                    pipe.watch(self._state_key, self._owner_key)
                    kept, found = pipe.mget(self._state_key, self._owner_key)
                    owner, state = SinkOwner.from_json(found), State.from_json(kept)
                    takes_over = refuse_second(owner, target, self._place)
                    if not takes_over:
                        state.refuse_later_owner(self._target.fence)
                    pipe.multi()
                    if takes_over and owner is not None:
                        # What either feed delivered before is not what the hashes hold from now on.
                        state = State()
                        pipe.unlink(*_names_of(owner.feed_id))
                    pipe.set(self._state_key, replace(state, fence=target.fence).as_json())
                    pipe.set(self._owner_key, SinkOwner.of(target).as_json())
                    try:
                        pipe.execute()
                    except redis.WatchError:
                        continue
                    return

    def _change(
        self,
        work: Callable[[State, Parked, Any], tuple[State, T]],
        keys: Callable[[State], Collection[str]] = lambda _: (),
    ) -> T:
        """Do some work and keep the state that it leaves, both or none; again if somebody came in between.

        The work is given the parked events of the keys that are asked for.
        """
        redis = _library()
        with _failures_as_unavailable():
            while True:
                with self._client.pipeline(transaction=True) as pipe:
                    pipe.watch(self._state_key, self._owner_key)
                    before = self._owned(pipe)
                    parked = self._read_parked(pipe, list(dict.fromkeys(keys(before))))
                    pipe.multi()
                    after, result = work(before, parked, pipe)
                    pipe.set(self._state_key, after.as_json())
                    try:
                        pipe.execute()
                    except redis.WatchError:
                        continue
                    self._sequence = _sequence_of(after)
                    return result

    def _read_parked(self, pipe: Any, keys: Sequence[str]) -> Parked:
        found = pipe.hmget(self._parked_key, keys) if keys else []
        return {key: json.loads(one) for key, one in zip(keys, found, strict=True) if one is not None}

    def _owned(self, connection: Any) -> State:
        """Return the state of the feed; `SinkEnded` if another feed or another process delivers by now."""
        kept, found = connection.mget(self._state_key, self._owner_key)
        refuse_former(SinkOwner.from_json(found), self._target, self._place)
        state = State.from_json(kept)
        state.refuse_later_owner(self._target.fence)
        sequence = _sequence_of(state)
        if sequence < self._sequence:
            # The client may connect again without an error: the caller is to look at what Redis still knows.
            self._sequence = sequence
            raise SinkUnavailable("Redis was restarted without its last writes")
        self._sequence = sequence
        return state

    @property
    def _place(self) -> str:
        return f"the hashes {self._prefix.decode()}*"


def _sequence_of(state: State) -> int:
    return 0 if state.mark is None else state.mark.sequence


class RedisSink:
    """INTO REDIS 'redis://host:6379/0'."""

    keyword = "REDIS"
    options: Mapping[str, str] = {
        "key_prefix": "The beginning of the name of each hash, before 'table:key'; nothing by default.",
        "ttl": "After how many seconds a hash goes that was not written again; never by default.",
        "password": "The password of the user in the URL, by reference.",
        "take_over": "Whether the feed may take the hashes of its prefix over from another feed; false.",
    }
    secrets = frozenset({"password"})

    def check(self, target: Target) -> None:
        """Refuse what is no URL of a Redis, and a relation without a key."""
        _check_url(target.location)
        if not target.has_key:
            raise FeedError(
                f"{target.table} has no key that could name its hashes",
                hint="name the columns that identify a row, as keys = 'a, b'",
            )
        check_take_over(target)
        _ttl(target)
        _library()

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Connect, and take the feed over."""
        return RedisDelivery(target)

    def forget(self, target: Target) -> None:
        """Remove the state of the feed; the hashes stay, and another feed may have them."""
        place = _owner_key(target)
        with _failures_as_unavailable(), contextlib.closing(_client(target)) as client:
            owner = SinkOwner.from_json(client.get(place))
            if owner is not None and owner.feed_id == target.feed_id:
                if owner.is_other(SinkOwner.of(target)):
                    # It is delivered by another home, which goes on.
                    return
                client.unlink(place)
            client.unlink(*_names_of(target.feed_id))


class _Rows:
    """The fields of rows by their index in a batch: text as it is, all else as JSON; NULL is no field."""

    def __init__(self, batch: Batch, chosen: Collection[int]) -> None:
        self._batch = batch
        self._made: dict[int, dict[str, bytes | str]] = {}
        self._make([index for index in chosen if batch.operations[index] != "DELETE"])

    def __getitem__(self, index: int) -> dict[str, bytes | str]:
        if index not in self._made:
            self._make([index])
        return self._made[index]

    def _make(self, indexes: Sequence[int]) -> None:
        rows = self._batch.rows.take(pa.array(indexes, pa.int64()))
        columns = [[_field(value) for value in json_column(column)] for column in rows.columns]
        for index, values in zip(indexes, zip(*columns, strict=True), strict=True):
            fields = {name: value for name, value in zip(rows.column_names, values, strict=True) if value is not None}
            # A hash is there as long as it has a field.
            self._made[index] = fields or {"": ""}


def _check_url(location: str) -> None:
    try:
        url = urlsplit(location)
        url.port  # noqa: B018
        right = url.scheme in ("redis", "rediss") and bool(url.hostname)
        right = right and (url.path.strip("/") or "0").isdecimal()
    except ValueError:
        right, url = False, urlsplit("")
    if not right:
        raise FeedError(
            "a feed into Redis needs the URL of a database", hint=f"write it as '{_EXAMPLE}', or rediss:// for TLS"
        )
    for name, _ in parse_qsl(url.query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise FeedError(
                f"the URL of a Redis has no parameter {name[:60]!r}", hint=f"there are {', '.join(sorted(_PARAMETERS))}"
            )


def _prefix_of(target: Target) -> bytes:
    """Return the beginning of the names of a feed's hashes, before the key."""
    return f"{target.options.get('key_prefix', '')}{target.table}:".encode()


def _owner_key(target: Target) -> bytes:
    """Return the name of the record of the feed that owns the hashes of a prefix."""
    return b"headrace:owner:" + _prefix_of(target)


def _names_of(feed_id: str) -> tuple[str, str, str]:
    """Return the names of a feed's state, of the keys that its scan has written, and of its parked events by key."""
    state = f"headrace:feed:{feed_id}"
    return state, f"{state}:scan", f"{state}:parked"


def _size(value: bytes | str) -> int:
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode())


def _field(value: Any) -> bytes | str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value)


def _ttl(target: Target) -> int | None:
    given = target.options.get("ttl")
    if given is None:
        return None
    text = str(given)
    if not text.isdecimal() or not 0 < int(text) < 2**40:
        raise FeedError(f"ttl cannot be {text!r}", hint="write it in whole seconds, as ttl = 3600")
    return int(text)


def _client(target: Target) -> Any:
    given: dict[str, Any] = {
        "socket_timeout": _ANSWER_SECONDS,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_keepalive": True,
        "retry": importlib.import_module("redis.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 0),
    }
    password = target.options.get("password")
    if password is not None:
        given["password"] = str(password)
    return _library().Redis.from_url(target.location, **given)


def _library() -> Any:
    try:
        import redis
    except ImportError as error:
        raise FeedError("redis is not installed", hint="pip install 'headrace[redis]', then try again") from error
    return redis


@contextlib.contextmanager
def _failures_as_unavailable(*but: type[Exception]) -> Generator[None, None, None]:
    """Inside, errors of Redis or of the way to it are raised as `SinkUnavailable`, but for some kinds.

    None of them is about a row: a value that is too large, the one thing that Redis finds fault with, is never sent.
    """
    try:
        yield
    except but:
        raise
    except _library().RedisError as error:
        raise SinkUnavailable(f"Redis: {error}") from error
