"""What the pages about PostgreSQL, Redis and DynamoDB say is what the sinks take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headrace.feeds.options import read_options
from headrace.feeds.sinks import SINKS
from headrace.sql.statements import parse
from headrace.sql.syntax import CreateFeed
from tests.feed_batches import target_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "postgres": ("reference/feeds-postgres.md", "how-to/serve-a-view-from-postgresql.md"),
    "redis": ("reference/feeds-redis.md",),
    "dynamodb": ("how-to/add-a-sink.md",),
}
COLUMNS = StructType(
    [
        StructField("id", LongType(), False),
        StructField("user_id", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("name", StringType()),
    ]
)


@pytest.mark.parametrize("name", PAGES)
def test_statements_of_the_pages_are_taken(name: str) -> None:
    seen = 0
    for page in PAGES[name]:
        for snippet in re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL):
            for one in parse(snippet):
                if isinstance(one, CreateFeed):
                    given: dict[str, Any] = dict(one.options)
                    read_options(given, SINKS[name])
                    own = {option: value for option, value in given.items() if option in SINKS[name].options}
                    SINKS[name].check(target_of(one.location, COLUMNS, options=own))
                    seen += 1
    assert seen == len(PAGES[name])


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_names_every_option(name: str) -> None:
    page = (DOCS / PAGES[name][0]).read_text(encoding="utf-8")
    assert [option for option in SINKS[name].options if f"`{option}`" not in page] == []
