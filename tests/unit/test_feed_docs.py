"""What the pages about Kafka and webhooks say is what the sinks take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.feeds.kafka import KafkaSink
from headrace.feeds.options import read_options
from headrace.feeds.webhook import WebhookSink
from headrace.sql.statements import parse
from headrace.sql.syntax import CreateFeed
from tests.part_batches import target

DOCS = Path(__file__).parents[2] / "docs"
SECRET = "whsec_" + "QUJD" * 8
SINKS = {"kafka": KafkaSink(), "webhook": WebhookSink(lambda *_: ["8.8.8.8"])}
HOW_TO = (DOCS / "how-to" / "send-changes-to-kafka-or-a-webhook.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("snippet", re.findall(r"```sql\n(.*?)```", HOW_TO, re.DOTALL))
def test_statements_of_the_how_to_are_taken(snippet: str) -> None:
    feeds = [one for one in parse(snippet) if isinstance(one, CreateFeed)]
    assert len(feeds) == 1
    sink, given = SINKS[feeds[0].sink.lower()], dict(feeds[0].options)
    read_options(given, sink)
    own: dict[str, Any] = {name: value for name, value in given.items() if name in sink.options or "." in name}
    if "secret" in own:
        own["secret"] = SECRET
    sink.check(target(feeds[0].location, **own))


@pytest.mark.parametrize("name", SINKS)
def test_the_reference_names_every_option(name: str) -> None:
    page = (DOCS / "reference" / f"feeds-{name}.md").read_text(encoding="utf-8")
    assert [option for option in SINKS[name].options if f"`{option}`" not in page] == []
