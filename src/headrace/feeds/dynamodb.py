"""INTO DYNAMODB: an item for each key, and how far the feed is, in one transaction with what was written.

The worked example of docs/how-to/add-a-sink.md. DynamoDB takes a hundred items in a transaction: a batch goes in
pieces, each with the numbers of its events, so that none takes effect twice wherever it is cut off.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.errors import FeedError
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.json_events import key_texts
from headrace.feeds.progress import further
from headrace.feeds.sink import Delivery, EventsRefused, SinkEnded, SinkUnavailable, Target
from headrace.json_forms import json_column

# Where all feeds of an account and region keep how far they are.
FEEDS = "headrace_feeds"
_KEY = "_key"
# One of the hundred is the state of the feed.
_ITEMS = 99
# Between these a number is one of DynamoDB's.
_LEAST, _MOST = 1e-130, 1e125
_ITEM_BYTES = 400_000
_PIECE_BYTES = 3_500_000
# Stands for a key of which no row can be written.
_NOTHING: dict[str, Any] = {}
_LOCATION = re.compile(r"dynamodb://([a-z0-9-]+)/([A-Za-z0-9_.-]{3,255})")


@dataclass(frozen=True)
class _State:
    """What DynamoDB knows of a feed; each change has the next version."""

    version: int = 0
    fence: int = 0
    mark: Mark | None = None
    told: DeliveredSequences = field(default_factory=DeliveredSequences)
    # Items up to this number were told before the scan that is under way.
    scan_after: int | None = None

    def at(self, mark: Mark) -> _State:
        return self if self.mark is not None and not further(mark, self.mark) else replace(self, mark=mark)


class DynamoDelivery:
    """An open table."""

    keeps_marks = keeps_epochs_whole = True
    tells_resets = False

    def __init__(self, target: Target) -> None:
        self._target = target
        _, self._table = _place(target)
        self._client = _client(target)
        try:
            with _told_as_unavailable():
                _make(self._client, self._table, _KEY)
                _make(self._client, FEEDS, "feed_id")
            self._keep(self._state(), lambda state: replace(state, fence=target.fence))
        except BaseException:
            self.close()
            raise

    def known_mark(self) -> Mark | None:
        """How far DynamoDB knows the feed to be."""
        return self._state().mark

    def deliver(self, batch: Batch) -> None:
        """Write the newest row of each key, in pieces, and how far the feed is with each."""
        state = self._state()
        numbers, keys = batch.sequences, [text.decode() for text in key_texts(batch)]
        if len(batch) and state.told.highest is None and state.scan_after is None and numbers[0] > 1:
            raise SinkEnded("DynamoDB no longer has what was told to it: RESYNC CHANGEFEED tells all rows anew")
        due = state.told.lacks(numbers)
        events: dict[str, list[int]] = {}
        for index, key in enumerate(keys):
            if due[index]:
                events.setdefault(key, []).append(index)
        newest = {key: some[-1] for key, some in events.items()}
        items = dict(zip(newest, self._items(batch, newest), strict=True))
        refused: dict[int, str] = {}
        for key in [key for key, item in items.items() if _size(item) > _ITEM_BYTES]:
            self._fall_back(batch, key, events[key], items, refused)
        for piece in _pieces(items):
            writes = [self._write(key, items[key]) for key in piece if items[key] is not _NOTHING]
            told = sorted(numbers[index] for key in piece for index in events[key])
            left = {numbers[index]: keys[index] for index in refused if keys[index] in piece}
            come = {key: numbers[index] for key in piece for index in events[key] if index not in refused}
            state = self._keep(state, _telling(told, left, come), writes)
        mark = min(batch.after, batch.mark_before(min(refused))) if refused else batch.after
        self._keep(state, lambda known: replace(known.at(mark), told=known.told.with_events(numbers, _left(known))))
        if refused:
            raise EventsRefused(refused)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Keep that all up to a mark was told."""
        self._keep(self._state(), lambda state: state.at(mark))

    def begin_scan(self, columns: StructType) -> None:
        """Remember which items were told before."""

        def begin(state: _State) -> _State:
            return replace(state, told=DeliveredSequences(state.told.highest), scan_after=state.told.highest or 0)

        self._keep(self._state(), begin)

    def end_scan(self, mark: Mark) -> None:
        """Take away the items that the scan has not told, each only if it is still an old one."""
        state = self._state()
        if state.scan_after is not None:
            names = {"#s": "_sequence", "#f": "_feed"}
            values = {":s": {"N": str(state.scan_after)}, ":f": {"S": self._target.feed_id}}
            old = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
            condition = "attribute_not_exists(#f) OR #f <> :f OR #s <= :s"
            with _told_as_unavailable():
                pages = self._client.get_paginator("scan").paginate(
                    TableName=self._table, FilterExpression=condition, ConsistentRead=True, **old
                )
                for item in (item for page in pages for item in page["Items"]):
                    with contextlib.suppress(self._client.exceptions.ConditionalCheckFailedException):
                        self._client.delete_item(
                            TableName=self._table, Key={_KEY: item[_KEY]}, ConditionExpression=condition, **old
                        )
        told = state.told if state.told.highest is not None else DeliveredSequences(mark.sequence)
        self._keep(state, lambda known: replace(known.at(mark), told=told, scan_after=None))

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _fall_back(
        self, batch: Batch, key: str, events: Sequence[int], items: dict[str, Any], refused: dict[int, str]
    ) -> None:
        """Refuse the newest row of a key, which is too large, and have the newest that is not in its place."""
        items[key] = _NOTHING
        for index in reversed(events):
            (item,) = self._items(batch, {key: index})
            if _size(item) <= _ITEM_BYTES:
                items[key] = item
                return
            refused[index] = f"its item has more than {_ITEM_BYTES:,} bytes, which DynamoDB does not store"

    def _items(self, batch: Batch, chosen: Mapping[str, int]) -> list[dict[str, Any] | None]:
        """The item of each key; none where its row is gone."""
        rows = batch.rows.take(pa.array(list(chosen.values()), pa.int64()))
        columns = [
            [_value(value, pa.types.is_decimal(column.type)) for value in json_column(column)]
            for column in rows.columns
        ]
        made: list[dict[str, Any] | None] = []
        for row, (key, index) in enumerate(chosen.items()):
            item = {name: column[row] for name, column in zip(rows.column_names, columns, strict=True)}
            item |= {_KEY: {"S": key}, "_feed": {"S": self._target.feed_id}}
            item["_sequence"] = {"N": str(batch.sequences[index])}
            made.append(None if batch.operations[index] == "DELETE" else item)
        return made

    def _write(self, key: str, item: dict[str, Any] | None) -> dict[str, Any]:
        if item is None:
            return {"Delete": {"TableName": self._table, "Key": {_KEY: {"S": key}}}}
        return {"Put": {"TableName": self._table, "Item": item}}

    def _state(self) -> _State:
        with _told_as_unavailable():
            found = self._client.get_item(TableName=FEEDS, Key=self._state_key, ConsistentRead=True).get("Item")
        if found is None:
            return _State()
        read = json.loads(found["state"]["S"])
        mark = None if read["mark"] is None else Mark.stored(**read["mark"])
        state = _State(
            read["version"], read["fence"], mark, DeliveredSequences.from_json(read["told"]), read["scan_after"]
        )
        if state.fence > self._target.fence:
            raise SinkEnded(f"another process, with the number {state.fence}, delivers this feed now")
        return state

    def _keep(self, state: _State, change: Any, writes: Sequence[dict[str, Any]] = ()) -> _State:
        """Write items and the state after them, if the state is still the one that is known."""
        after: _State = replace(change(state), version=state.version + 1)
        if after == replace(state, version=after.version) and not writes:
            return state
        mark = None if after.mark is None else asdict(after.mark)
        kept = {**asdict(replace(after, mark=None)), "mark": mark, "told": after.told.as_json()}
        put = {
            "TableName": FEEDS,
            "Item": {**self._state_key, "version": {"N": str(after.version)}, "state": {"S": json.dumps(kept)}},
            "ConditionExpression": "attribute_not_exists(version) OR version = :before",
            "ExpressionAttributeValues": {":before": {"N": str(state.version)}},
        }
        with _told_as_unavailable():
            try:
                self._client.transact_write_items(TransactItems=[{"Put": put}, *writes])
            except self._client.exceptions.TransactionCanceledException as error:
                # It may be another owner, or a call of our own that was thought lost: the state tells.
                self._state()
                raise SinkUnavailable(f"DynamoDB: {error}") from error
        return after

    @property
    def _state_key(self) -> dict[str, Any]:
        return {"feed_id": {"S": self._target.feed_id}}


class DynamoSink:
    """INTO DYNAMODB 'dynamodb://region/table'."""

    keyword = "DYNAMODB"
    options: Mapping[str, str] = {
        "endpoint_url": "Where DynamoDB is, if it is not Amazon's: 'http://localhost:8000'.",
    }
    secrets: frozenset[str] = frozenset()

    def check(self, target: Target) -> None:
        """Refuse what is no table of DynamoDB, and a relation without a key."""
        _place(target)
        if not target.has_key:
            raise FeedError(
                f"{target.table} has no key that could name its items",
                hint="name the columns that identify a row, as keys = 'a, b'",
            )
        _library()

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Make the table if it is not there, and take the feed over."""
        return DynamoDelivery(target)

    def forget(self, target: Target) -> None:
        """Take away how far the feed was; the items stay."""
        with (
            _told_as_unavailable(),
            contextlib.closing(_client(target)) as client,
            contextlib.suppress(client.exceptions.ResourceNotFoundException),
        ):
            client.delete_item(TableName=FEEDS, Key={"feed_id": {"S": target.feed_id}})


def _telling(told: Sequence[int], left: Mapping[int, str], newest: Mapping[str, int]) -> Any:
    return lambda state: replace(state, told=state.told.with_events(told, left, newest))


def _left(state: _State) -> Mapping[int, str]:
    """The refused events, which stay so."""
    return state.told.refused


def _pieces(items: Mapping[str, dict[str, Any] | None]) -> Generator[list[str], None, None]:
    """Keys that go in one transaction."""
    piece: list[str] = []
    size = 0
    for key, item in items.items():
        if piece and (len(piece) == _ITEMS or size + _size(item) > _PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(key)
        size += min(_size(item), _ITEM_BYTES)
    if piece:
        yield piece


def _size(item: dict[str, Any] | None) -> int:
    return 0 if item is None else len(json.dumps(item, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def _value(value: Any, is_decimal: bool = False) -> dict[str, Any]:
    """A value in DynamoDB's form; a number that it cannot hold is text."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if (
        is_decimal
        or isinstance(value, int)
        or (isinstance(value, float) and (not value or _LEAST < abs(value) < _MOST))
    ):
        return {"N": str(value)}
    if isinstance(value, list):
        parts: list[Any] = value
        return {"L": [_value(part) for part in parts]}
    if isinstance(value, dict):
        entries: dict[str, Any] = value
        return {"M": {name: _value(part) for name, part in entries.items()}}
    return {"S": str(value)}


def _place(target: Target) -> tuple[str, str]:
    found = _LOCATION.fullmatch(target.location)
    if found is None:
        raise FeedError(
            "a feed into DynamoDB needs a region and the name of a table",
            hint="write it as 'dynamodb://eu-north-1/orders'",
        )
    return found[1], found[2]


def _make(client: Any, table: str, key: str) -> None:
    with contextlib.suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    client.get_waiter("table_exists").wait(TableName=table)


def _client(target: Target) -> Any:
    region, _ = _place(target)
    endpoint = target.options.get("endpoint_url")
    with _told_as_unavailable():
        return _library().client(
            "dynamodb", region_name=region, endpoint_url=None if endpoint is None else str(endpoint)
        )


def _library() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise FeedError("boto3 is not installed", hint="pip install 'headrace[dynamodb]', then try again") from error
    return boto3


@contextlib.contextmanager
def _told_as_unavailable() -> Generator[None, None, None]:
    """Inside, what DynamoDB or the way to it refuses is told as a sink tells it."""
    _library()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise SinkUnavailable(f"DynamoDB: {error}") from error
