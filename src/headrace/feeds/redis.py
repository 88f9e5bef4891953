"""INTO REDIS: a hash for each key, and how far the feed is, in one MULTI ... EXEC with what was written.

The state of a feed is watched while a batch is made ready: if somebody else changes it meanwhile, nothing is written.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import orjson
from pyspark.sql.types import StructType

from headrace.errors import FeedError
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.json_events import key_texts
from headrace.feeds.progress import further
from headrace.feeds.sink import Delivery, SinkEnded, SinkUnavailable, Target
from headrace.json_forms import json_column

_EXAMPLE = "redis://host:6379/0"
_SCAN_COUNT = 1_000
_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\*?[]^-"})


@dataclass(frozen=True)
class _State:
    """What Redis knows of a feed."""

    fence: int = 0
    mark: Mark | None = None
    told: DeliveredSequences = field(default_factory=DeliveredSequences)
    scanning: bool = False

    def at(self, mark: Mark) -> _State:
        return self if self.mark is not None and not further(mark, self.mark) else replace(self, mark=mark)


class RedisDelivery:
    """An open Redis."""

    keeps_marks = keeps_epochs_whole = True
    tells_resets = False

    def __init__(self, target: Target) -> None:
        self._target = target
        self._prefix = f"{target.options.get('key_prefix', '')}{target.table}:".encode()
        self._ttl = _ttl(target)
        self._state_key = f"headrace:feed:{target.feed_id}"
        # The keys that a scan under way has told.
        self._scan_key = f"{self._state_key}:scan"
        self._client = _client(target)
        try:
            # From now on, whoever owned the feed before ends.
            self._change(lambda state, _: replace(state, fence=target.fence))
        except BaseException:
            self.close()
            raise

    def known_mark(self) -> Mark | None:
        """How far Redis knows the feed to be."""
        with _told_as_unavailable():
            return self._owned(self._client.get(self._state_key)).mark

    def deliver(self, batch: Batch) -> None:
        """Write the newest row of each key, and how far the feed is, all at once."""
        self._change(lambda state, pipe: self._write(batch, state, pipe))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Keep that all up to a mark was told."""
        self._change(lambda state, _: state.at(mark))

    def begin_scan(self, columns: StructType) -> None:
        """Remember from here on which keys are told."""

        def begin(state: _State, pipe: Any) -> _State:
            pipe.unlink(self._scan_key)
            # Older events that were left out say nothing any more.
            return replace(state, told=DeliveredSequences(state.told.highest), scanning=True)

        self._change(begin)

    def end_scan(self, mark: Mark) -> None:
        """Take away the keys of the table that the scan has not told, some at a time, and then forget the scan."""
        with _told_as_unavailable():
            scanning = self._owned(self._client.get(self._state_key)).scanning
            cursor = 0
            while scanning:
                cursor, keys = self._client.scan(cursor, self._prefix.decode().translate(_SPECIAL) + "{*", _SCAN_COUNT)
                told = self._client.smismember(self._scan_key, keys) if keys else []
                stale = [key for key, known in zip(keys, told, strict=True) if not known]
                if stale:
                    self._change(lambda state, pipe, stale=stale: pipe.unlink(*stale) and state)
                scanning = cursor != 0

        def end(state: _State, pipe: Any) -> _State:
            pipe.unlink(self._scan_key)
            told = state.told if state.told.highest is not None else DeliveredSequences(mark.sequence)
            return replace(state.at(mark), told=told, scanning=False)

        self._change(end)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _write(self, batch: Batch, state: _State, pipe: Any) -> _State:
        numbers = batch.sequences
        if len(batch) and state.told.highest is None and not state.scanning and numbers[0] > 1:
            raise SinkEnded("Redis no longer has what was told to it: RESYNC CHANGEFEED tells all rows anew")
        due = state.told.lacks(numbers)
        newest = {key: index for index, key in enumerate(key_texts(batch)) if due[index]}
        rows = _rows(batch, list(newest.values()))
        for key, index in newest.items():
            name = self._prefix + key
            pipe.unlink(name)
            if batch.operations[index] != "DELETE":
                pipe.hset(name, mapping=next(rows))
                if self._ttl is not None:
                    pipe.expire(name, self._ttl)
                if state.scanning:
                    pipe.sadd(self._scan_key, name)
        return replace(state.at(batch.after), told=state.told.with_events(numbers))

    def _change(self, work: Callable[[_State, Any], _State]) -> None:
        """Do some work and keep the state that it leaves, both or none; again if somebody came in between."""
        redis = _library()
        with _told_as_unavailable():
            while True:
                with self._client.pipeline(transaction=True) as pipe:
                    pipe.watch(self._state_key)
                    before = self._owned(pipe.get(self._state_key))
                    pipe.multi()
                    after = work(before, pipe)
                    pipe.set(self._state_key, _json(after))
                    try:
                        pipe.execute()
                    except redis.WatchError:
                        continue
                    return

    def _owned(self, kept: bytes | None) -> _State:
        state = _state(kept)
        if state.fence > self._target.fence:
            raise SinkEnded(f"another process, with the number {state.fence}, delivers this feed now")
        return state


class RedisSink:
    """INTO REDIS 'redis://host:6379/0'."""

    keyword = "REDIS"
    options: Mapping[str, str] = {
        "key_prefix": "What stands before 'table:key' in the name of each hash; nothing if nobody says.",
        "ttl": "After how many seconds a hash goes that was not written again; never if nobody says.",
        "password": "The password of the user in the URL, by reference.",
    }
    secrets = frozenset({"password"})

    def check(self, target: Target) -> None:
        """Refuse what is no URL of a Redis, and a relation without a key."""
        try:
            url = urlsplit(target.location)
            url.port  # noqa: B018
            right = url.scheme in ("redis", "rediss") and bool(url.hostname)
            right = right and (url.path.strip("/") or "0").isdecimal()
        except ValueError:
            right = False
        if not right:
            raise FeedError(
                "a feed into Redis needs the URL of a database", hint=f"write it as '{_EXAMPLE}', or rediss:// for TLS"
            )
        if not target.has_key:
            raise FeedError(
                f"{target.table} has no key that could name its hashes",
                hint="name the columns that identify a row, as keys = 'a, b'",
            )
        _ttl(target)
        _library()

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Connect, and take the feed over."""
        return RedisDelivery(target)

    def forget(self, target: Target) -> None:
        """Take away how far the feed was; the hashes stay."""
        state = f"headrace:feed:{target.feed_id}"
        with _told_as_unavailable(), contextlib.closing(_client(target)) as client:
            client.unlink(state, f"{state}:scan")


def _rows(batch: Batch, indexes: list[int]) -> Generator[dict[str, bytes | str], None, None]:
    """The fields of each row that is there, in order: text as it is, all else as JSON; NULL is no field."""
    there = [index for index in indexes if batch.operations[index] != "DELETE"]
    if not there:
        return
    rows = batch.rows.take(there)
    names = rows.column_names
    columns = [[_field(value) for value in json_column(column)] for column in rows.columns]
    for values in zip(*columns, strict=True):
        fields = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        # A hash is there as long as it has a field.
        yield fields or {"": ""}


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


def _json(state: _State) -> bytes:
    mark = None if state.mark is None else asdict(state.mark)
    kept = {"fence": state.fence, "mark": mark, "told": state.told.as_json(), "scanning": state.scanning}
    return json.dumps(kept).encode()


def _state(kept: bytes | None) -> _State:
    if kept is None:
        return _State()
    read = json.loads(kept)
    mark = None if read["mark"] is None else Mark.stored(**read["mark"])
    return _State(read["fence"], mark, DeliveredSequences.from_json(read["told"]), read["scanning"])


def _client(target: Target) -> Any:
    given: dict[str, Any] = {"socket_timeout": 60, "socket_connect_timeout": 10}
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
def _told_as_unavailable() -> Generator[None, None, None]:
    """Inside, what Redis refuses is told as a sink tells it: whoever can mend it does, and it is tried again."""
    try:
        yield
    except _library().RedisError as error:
        raise SinkUnavailable(f"Redis: {error}") from error
