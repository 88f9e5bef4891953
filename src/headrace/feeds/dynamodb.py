"""INTO DYNAMODB: an item for each key, and how far the feed is, in one transaction with what was written.

The worked example of docs/how-to/add-a-sink.md. DynamoDB takes a hundred items in a transaction: a batch goes in
pieces, each with the sequences of its events, so that none takes effect twice wherever it is cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from pyspark.sql.types import StructType

from headrace.errors import FeedError
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.dynamodb_items import ITEM_BYTES, KEY, Items, pieces
from headrace.feeds.keyed import KeyedEvents, Parked, keys_of, refused_by_key
from headrace.feeds.keyed_state import State
from headrace.feeds.sink import Delivery, EventsRefused, SinkEnded, SinkUnavailable, Target
from headrace.feeds.sink_owner import SinkOwner, check_take_over, refuse_former, refuse_second

T = TypeVar("T")

# Where all feeds of an account and region keep how far they are, which table is whose, and parked events.
FEEDS = "headrace_feeds"
FEED_KEY = "feed_id"
_LOCATION = re.compile(r"dynamodb://([a-z0-9-]+)/([A-Za-z0-9_.-]{3,255})")
# How many items one request reads, and how many a transaction writes beside the state.
_READ, _WRITTEN = 100, 99
# A server that says nothing for so long is away; a request that was throttled is tried again by the client first.
_CONNECT_SECONDS, _ANSWER_SECONDS, _ATTEMPTS = 10.0, 20.0, 3
# Why a transaction was cancelled, where the fault is in an item; any other reason passes.
_OF_A_ROW = frozenset({"ValidationError", "ItemCollectionSizeLimitExceeded"})


@dataclass(eq=False)
class _WritesRefused(Exception):
    """Writes that DynamoDB never takes, by their index; none is named where only the whole transaction is refused."""

    reason: str
    indexes: Sequence[int] = ()


class DynamoDelivery:
    """An open table."""

    keeps_marks = keeps_epochs_whole = True
    tells_resets = False

    def __init__(self, target: Target) -> None:
        self._target = target
        _, self._table = _place(target)
        self._client = _client(target)
        # Why the table cannot be followed on, until a scan brings all of it.
        self._lost = ""
        try:
            with self._failures():
                _make(self._client, FEEDS, FEED_KEY)
                state = self._take_over()
                if not _is_there(self._client, self._table):
                    if state.told.highest is None:
                        _make(self._client, self._table, KEY)
                    else:
                        self._lost = self._gone
        except BaseException:
            self.close()
            raise

    def known_mark(self) -> Mark | None:
        """Return the mark that DynamoDB keeps."""
        return self._state().mark

    def deliver(self, batch: Batch) -> None:
        """Write the newest row of each key, in pieces, and how far the feed is with each."""
        if self._lost:
            raise SinkEnded(self._lost)
        state, keys = self._state(), keys_of(batch)
        state.refuse_loss(batch, "DynamoDB")
        events = KeyedEvents.of(batch, state.told, self._read_parked(keys) if state.has_parked else {})
        items = Items(batch, keys, self._target.feed_id, events.written.values())
        events.refuse_all(lambda index: _too_large(items.size(index)))

        def weight(key: str) -> tuple[int, int]:
            index = events.written.get(key)
            return (index is not None) + (key in events.parked), 0 if index is None else items.size(index)

        for piece in pieces(events.events, weight):
            state = self._write(state, events, items, piece)
        self._keep(state, state.at(batch.mark_without(events.refused)))
        if events.refused:
            raise EventsRefused(events.refused)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Keep that all up to a mark was delivered."""
        state = self._state()
        self._keep(state, state.at(mark))

    def give_up(self, sequences: Collection[int]) -> None:
        """Move refused events, which are parked by now, from the feed's state to an item for each key."""
        state = self._state()
        for part in _parts(refused_by_key(state.told, sequences).items(), _WRITTEN):
            writes = [
                {
                    "Update": {
                        "TableName": FEEDS,
                        "Key": self._parked_key(key),
                        "UpdateExpression": "ADD sequences :added",
                        "ExpressionAttributeValues": {":added": _number_set(numbers)},
                    }
                }
                for key, numbers in part
            ]
            told = state.told.give_up([number for _, numbers in part for number in numbers])
            state = self._keep(state, replace(state, told=told, has_parked=True), writes)

    def begin_scan(self, columns: StructType) -> None:
        """Remember which items were written before."""
        state = self._state()
        with self._failures():
            _make(self._client, self._table, KEY)
            _forget_parked(self._client, self._target.feed_id)
        self._keep(state, state.begin_scan())
        self._lost = ""

    def end_scan(self, mark: Mark) -> None:
        """Remove the items that the scan has not written, as long as nobody else has taken the feed over."""
        state = self._state()
        if state.scan_after is not None:
            for part in _parts(self._stale_keys(state.scan_after), _WRITTEN):
                deletes = [{"Delete": {"TableName": self._table, "Key": {KEY: key}}} for key in part]
                state = self._keep(state, state, deletes)
        self._keep(state, state.end_scan(mark))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _write(self, state: State, events: KeyedEvents, items: Items, keys: Sequence[str]) -> State:
        """Write the items of some keys; those that DynamoDB does not take are searched for, and refused alone."""
        writes: list[tuple[str, dict[str, Any]]] = []
        for key in keys:
            index = events.written.get(key)
            if index is not None:
                writes.append((key, self._item_write(key, items[index])))
            if key in events.parked:
                writes.append((key, self._parked_write(key, events.still_parked(key))))
        written = [key for key in keys if key in events.written]
        try:
            after = replace(state, told=events.delivered(state.told, keys))
            return self._keep(state, after, [one for _, one in writes])
        except _WritesRefused as error:
            guilty = {writes[index][0] for index in error.indexes} & set(written) or set(written)
            if not guilty:
                raise SinkUnavailable(f"DynamoDB does not take the state of the feed: {error.reason}") from error
            if len(guilty) > 1 and not error.indexes:
                middle = keys.index(written[len(written) // 2])
                state = self._write(state, events, items, keys[:middle])
                return self._write(state, events, items, keys[middle:])
            for key in guilty:
                events.refuse(key, error.reason)
                events.refuse_all(lambda index: _too_large(items.size(index)), (key,))
            return self._write(state, events, items, keys)

    def _item_write(self, key: str, item: dict[str, Any] | None) -> dict[str, Any]:
        if item is None:
            return {"Delete": {"TableName": self._table, "Key": {KEY: {"S": key}}}}
        return {"Put": {"TableName": self._table, "Item": item}}

    def _stale_keys(self, scan_after: int) -> Iterator[dict[str, Any]]:
        """Yield the keys of items that are not of this feed, or that it wrote before a scan."""
        with self._failures():
            pages = self._client.get_paginator("scan").paginate(
                TableName=self._table,
                FilterExpression="attribute_not_exists(#f) OR #f <> :f OR #s <= :s",
                ExpressionAttributeNames={"#s": "_sequence", "#f": "_feed", "#k": KEY},
                ExpressionAttributeValues={":s": {"N": str(scan_after)}, ":f": {"S": self._target.feed_id}},
                ProjectionExpression="#k",
                ConsistentRead=True,
            )
            for page in pages:
                yield from (item[KEY] for item in page["Items"])

    # Parked events.

    def _parked_key(self, key: str) -> dict[str, Any]:
        # A key that DynamoDB does not take may be the very fault.
        name = f"{_parked_prefix(self._target.feed_id)}{hashlib.sha256(key.encode()).hexdigest()}"
        return {FEED_KEY: {"S": name}}

    def _parked_write(self, key: str, left: Sequence[int]) -> dict[str, Any]:
        where = self._parked_key(key)
        if left:
            return {"Put": {"TableName": FEEDS, "Item": {**where, "sequences": _number_set(left)}}}
        return {"Delete": {"TableName": FEEDS, "Key": where}}

    def _read_parked(self, keys: Sequence[str]) -> Parked:
        names = {self._parked_key(key)[FEED_KEY]["S"]: key for key in keys}
        found: dict[str, list[int]] = {}
        for part in _parts(names, _READ):
            for item in self._read([{FEED_KEY: {"S": name}} for name in part]):
                found[names[item[FEED_KEY]["S"]]] = [int(one) for one in item["sequences"]["NS"]]
        return found

    # The state.

    def _read(self, keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        with self._failures():
            answer = self._client.batch_get_item(RequestItems={FEEDS: {"Keys": keys, "ConsistentRead": True}})
        if answer.get("UnprocessedKeys"):
            raise SinkUnavailable("DynamoDB: it throttles reads")
        return answer["Responses"].get(FEEDS, [])

    def _look(self) -> tuple[State, SinkOwner | None, str | None]:
        """Return the state of the feed, and the owner of the table, as it is and as it is written."""
        found = {item[FEED_KEY]["S"]: item for item in self._read([self._state_key, self._owner_key])}
        owner = found.get(self._owner_key[FEED_KEY]["S"], {}).get("owner", {}).get("S")
        kept = found.get(self._target.feed_id)
        state = State.from_json(None if kept is None else kept["state"]["S"])
        return state, SinkOwner.from_json(owner), owner

    def _state(self) -> State:
        """Return the state of the feed; `SinkEnded` if another feed or another process delivers by now."""
        state, owner, _ = self._look()
        refuse_former(owner, self._target, self._place)
        state.refuse_later_owner(self._target.fence)
        return state

    def _take_over(self) -> State:
        """Become the owner of the table and of the feed: from now on, whoever was that before ends."""
        state, owner, written = self._look()
        takes_over = refuse_second(owner, self._target, self._place)
        if not takes_over:
            state.refuse_later_owner(self._target.fence)
        put: dict[str, Any] = {
            "TableName": FEEDS,
            "Item": {**self._owner_key, "owner": {"S": SinkOwner.of(self._target).as_json()}},
            "ConditionExpression": "attribute_not_exists(#o)" if written is None else "#o = :before",
            "ExpressionAttributeNames": {"#o": "owner"},
        }
        if written is not None:
            put["ExpressionAttributeValues"] = {":before": {"S": written}}
        writes = [{"Put": put}]
        if takes_over and owner is not None:
            if owner.feed_id != self._target.feed_id:
                writes.append({"Delete": {"TableName": FEEDS, "Key": {FEED_KEY: {"S": owner.feed_id}}}})
            # What either feed delivered before is not what the table holds from now on.
            return self._keep(state, State(self._target.fence), writes)
        return self._keep(state, replace(state, fence=self._target.fence), writes)

    def _keep(self, state: State, after: State, writes: Sequence[dict[str, Any]] = ()) -> State:
        """Write items and the state after them, if the state is still the one that is known."""
        if after == state and not writes:
            return state
        after = replace(after, version=state.version + 1)
        put: dict[str, Any] = {
            "TableName": FEEDS,
            "Item": {**self._state_key, "version": {"N": str(after.version)}, "state": {"S": after.as_json()}},
            "ConditionExpression": "version = :before" if state.version else "attribute_not_exists(version)",
        }
        if state.version:
            put["ExpressionAttributeValues"] = {":before": {"N": str(state.version)}}
        _, client_error = _errors()
        with self._failures():
            try:
                self._client.transact_write_items(TransactItems=[{"Put": put}, *writes])
            except self._client.exceptions.TransactionCanceledException as error:
                raise self._cancelled(error) from error
            except client_error as error:
                if error.response["Error"]["Code"] == "ValidationException":
                    raise _WritesRefused(str(error)) from error
                raise
        return after

    def _cancelled(self, error: Any) -> Exception:
        reasons = error.response.get("CancellationReasons", [])
        refused = [index - 1 for index, one in enumerate(reasons) if index and one.get("Code") in _OF_A_ROW]
        if refused:
            return _WritesRefused(str(reasons[refused[0] + 1].get("Message") or error), refused)
        # It may be another owner, which ends this one, or a call of our own that was thought lost.
        self._look()
        return SinkUnavailable(f"DynamoDB: {error}")

    @contextlib.contextmanager
    def _failures(self) -> Generator[None, None, None]:
        """Inside, a table that is not there is raised as `SinkEnded`, any other error as `SinkUnavailable`."""
        _, client_error = _errors()
        with _failures_as_unavailable():
            try:
                yield
            except client_error as error:
                if error.response["Error"]["Code"] == "ResourceNotFoundException":
                    raise SinkEnded(self._gone) from error
                raise

    @property
    def _gone(self) -> str:
        return f"the table {self._table} is gone with all its items: RESYNC CHANGEFEED makes and fills it again"

    @property
    def _place(self) -> str:
        return f"the table {self._table}"

    @property
    def _state_key(self) -> dict[str, Any]:
        return {FEED_KEY: {"S": self._target.feed_id}}

    @property
    def _owner_key(self) -> dict[str, Any]:
        return _owner_key(self._table)


class DynamoSink:
    """INTO DYNAMODB 'dynamodb://region/table'."""

    keyword = "DYNAMODB"
    options: Mapping[str, str] = {
        "endpoint_url": "Where DynamoDB is, if it is not Amazon's: 'http://localhost:8000'.",
        "take_over": "Whether the feed may take its table over from another feed; false.",
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
        check_take_over(target)
        _library()

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Make the table if it is not there, and take the feed over."""
        return DynamoDelivery(target)

    def forget(self, target: Target) -> None:
        """Remove the state of the feed; the items stay, and another feed may have the table."""
        _, table = _place(target)
        with (
            _failures_as_unavailable(),
            contextlib.closing(_client(target)) as client,
            contextlib.suppress(client.exceptions.ResourceNotFoundException),
        ):
            kept = client.get_item(TableName=FEEDS, Key=_owner_key(table), ConsistentRead=True).get("Item")
            owner = None if kept is None else SinkOwner.from_json(kept["owner"]["S"])
            if owner is not None and owner.feed_id == target.feed_id:
                if owner.is_other(SinkOwner.of(target)):
                    # It is delivered by another home, which goes on.
                    return
                client.delete_item(TableName=FEEDS, Key=_owner_key(table))
            client.delete_item(TableName=FEEDS, Key={FEED_KEY: {"S": target.feed_id}})
            _forget_parked(client, target.feed_id)


def _too_large(size: int) -> str | None:
    return f"its item has more than {ITEM_BYTES:,} bytes, which DynamoDB does not store" if size > ITEM_BYTES else None


def _parts(values: Iterable[T], most: int) -> Generator[list[T], None, None]:
    """Yield values in lists of at most so many."""
    left = iter(values)
    while part := list(islice(left, most)):
        yield part


def _number_set(sequences: Sequence[int]) -> dict[str, Any]:
    """Return sequences as a set of numbers of DynamoDB."""
    return {"NS": [str(one) for one in sequences]}


def _parked_prefix(feed_id: str) -> str:
    """Return the beginning of the keys of a feed's parked events."""
    return f"{feed_id}:parked:"


def _owner_key(table: str) -> dict[str, Any]:
    """Return the key of the record of the feed that owns a table."""
    return {FEED_KEY: {"S": f"table:{table}"}}


def _forget_parked(client: Any, feed_id: str) -> None:
    """Remove the items of a feed's parked events."""
    pages = client.get_paginator("scan").paginate(
        TableName=FEEDS,
        FilterExpression="begins_with(#k, :prefix)",
        ExpressionAttributeNames={"#k": FEED_KEY},
        ExpressionAttributeValues={":prefix": {"S": _parked_prefix(feed_id)}},
        ProjectionExpression="#k",
        ConsistentRead=True,
    )
    for item in (item for page in pages for item in page["Items"]):
        client.delete_item(TableName=FEEDS, Key=item)


def _place(target: Target) -> tuple[str, str]:
    found = _LOCATION.fullmatch(target.location)
    if found is None:
        raise FeedError(
            "a feed into DynamoDB needs a region and the name of a table",
            hint="write it as 'dynamodb://eu-north-1/orders'",
        )
    return found[1], found[2]


def _is_there(client: Any, table: str) -> bool:
    try:
        client.describe_table(TableName=table)
    except client.exceptions.ResourceNotFoundException:
        return False
    return True


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
    boto3 = _library()
    from botocore.config import Config

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_ANSWER_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        tcp_keepalive=True,
    )
    with _failures_as_unavailable():
        return boto3.client(
            "dynamodb",
            region_name=region,
            endpoint_url=None if endpoint is None else str(endpoint),
            config=config,
        )


def _library() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise FeedError("boto3 is not installed", hint="pip install 'headrace[dynamodb]', then try again") from error
    return boto3


def _errors() -> tuple[type[Exception], Any]:
    """Return the errors of the way to DynamoDB, and those that DynamoDB answers with."""
    _library()
    from botocore.exceptions import BotoCoreError, ClientError

    return BotoCoreError, ClientError


@contextlib.contextmanager
def _failures_as_unavailable() -> Generator[None, None, None]:
    """Inside, errors of DynamoDB or of the way to it are raised as `SinkUnavailable`."""
    try:
        yield
    except _errors() as error:
        raise SinkUnavailable(f"DynamoDB: {error}") from error
