"""The sinks that there are, by the keyword that stands after INTO: to add one is to add a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.feeds.dynamodb import DynamoSink
from headrace.feeds.files import FILES
from headrace.feeds.kafka import KAFKA
from headrace.feeds.postgres import PostgresSink
from headrace.feeds.redis import RedisSink
from headrace.feeds.sink import Sink
from headrace.feeds.webhook import WEBHOOK

_ALL: Sequence[Sink] = (DynamoSink(), FILES, KAFKA, PostgresSink(), RedisSink(), WEBHOOK)

SINKS: Mapping[str, Sink] = {one.keyword.lower(): one for one in _ALL}
