"""PostgreSQL as a sink: a table that equals the relation, for whoever reads it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import FeedError
from headrace.feeds.postgres_names import read_place, read_target
from headrace.feeds.sink import Delivery, Target


class PostgresSink:
    """INTO POSTGRES 'postgresql://user@host:5432/database/table'."""

    keyword = "POSTGRES"
    options: Mapping[str, str] = {
        "keys": "The columns of the primary key, as 'a, b'; the relation's own key if nobody says.",
        "indexes": "Further indexes of the table, as 'user_id; user_id, timestamp DESC'.",
        "mode": "'mirror' (the default): the table equals the relation; 'upsert': deletes are left out; 'insert': new "
        "rows are added, and nothing that is there is changed.",
        "take_over": "Whether mode 'mirror' may begin with a table that has rows already, and delete those that the "
        "relation does not have; false.",
        "password": "The password of the user in the URL, by reference; else PGPASSWORD or ~/.pgpass.",
    }
    secrets = frozenset({"password"})

    def check(self, target: Target) -> None:
        """Refuse a URL without a table, an unknown column, a name that PostgreSQL has not, a relation without a key."""
        read_target(target)
        _refuse_missing()

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Make or check the table and take the feed over."""
        from headrace.feeds.postgres_delivery import PostgresDelivery

        return PostgresDelivery(target, read_target(target))

    def forget(self, target: Target) -> None:
        """Take the feed out of headrace_feeds; its table stays."""
        from headrace.feeds.postgres_delivery import forget

        forget(target, read_place(target))


def _refuse_missing() -> None:
    try:
        import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise FeedError("psycopg is not installed", hint="pip install 'headrace[postgres]', then try again") from error
