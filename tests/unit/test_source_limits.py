"""What sources that clients define may name, where a setting lists it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.serving.problems import Refusal
from headrace.serving.source_limits import refuse_unlisted

ALLOWED = (
    "/data/in",
    "file:/run/secrets",
    "env:SHOP_*",
    "env:ONE",
    "https://registry:8081/apis/ccompat",
    "kafka://broker:9092",
    "postgresql://db",
    "postgres://[::1]:6000/a",
    "redis://cache",
)


@pytest.mark.parametrize(
    ("connector", "location", "options"),
    [
        ("files", "/data/in", {}),
        ("files", "/data/in/orders/", {"pattern": "*.csv"}),
        ("delta", "/data/in/../in/t", {}),
        ("kafka", "broker:9092/shop.*", {"kafka.sasl.password": "env:SHOP_PASSWORD"}),
        ("kafka", "kafka://broker/t", {"registry": "https://registry:8081/apis/ccompat/v7"}),
        ("postgres", "postgresql://reader@db:5432/shop", {"password": "file:/run/secrets/shop"}),
        ("postgres", "postgres://reader@DB/shop/orders?sslmode=require&connect_timeout=3", {}),
        ("postgres", "postgresql://reader@db/shop?sslmode=disable&connectTimeout=3", {}),
        ("postgres", "postgresql://db/shop?sslrootcert=/data/in/ca.pem", {}),
        ("postgres", "postgresql://db:5432,db/shop/orders", {}),
        ("postgres", "postgresql://[::1]:6000/a/t", {}),
        ("redis", "redis://cache:6379/0", {}),
        ("", "", {"password": "env:ONE", "max_records": 7}),
    ],
)
def test_what_is_listed_may_be_named(connector: str, location: str, options: dict[str, Any]) -> None:
    refuse_unlisted(ALLOWED, connector, location, options)
    refuse_unlisted(None, connector, location, options)


@pytest.mark.parametrize(
    ("connector", "location", "options"),
    [
        ("", "", {"ca_cert": "/etc/passwd"}),
        ("", "", {"client_key": "/data/other"}),
        ("kafka", "kafka://broker/t", {"kafka.ssl.key.location": "/etc/shadow"}),
        ("kafka", "kafka://broker/t", {"kafka.sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/"}),
        ("", "", {"endpoint_url": "http://127.0.0.1:8000"}),
        ("files", "/data/in/../other", {}),
        ("files", "/data/inner", {}),
        ("delta", "/etc", {}),
        ("delta", "s3://bucket/t", {}),
        ("kafka", "broker:9093/t", {}),
        ("kafka", "broker:9092,mine:9092/t", {}),
        ("kafka", "broker:9092/t", {"kafka.bootstrap.servers": "mine:9092"}),
        ("kafka", "broker:9092/t", {"kafka.sasl.password": "file:/etc/shadow"}),
        ("kafka", "broker:9092/t", {"kafka.sasl.password": "file:/run/secrets/../shadow"}),
        ("kafka", "broker:9092/t", {"kafka.sasl.password": "env:ONE_MORE"}),
        ("kafka", "broker:9092/t", {"registry": "http://registry:8081/apis/ccompat"}),
        ("kafka", "broker:9092/t", {"registry": "https://registry:8081@mine/apis/ccompat"}),
        ("kafka", "broker:9092/t", {"registry": "https://registry:8081/apis/ccompat/../other"}),
        ("postgres", "postgresql://reader@db:5433/shop", {}),
        ("postgres", "postgresql://reader@db.mine/shop", {}),
        ("postgres", "postgresql://reader@db/shop?sslrootcert=/etc/passwd", {}),
        ("postgres", "postgresql://db/shop/orders?host=mine", {}),
        ("postgres", "postgresql://db/shop/orders?hostaddr=203.0.113.9", {}),
        ("postgres", "postgresql://db/shop/orders?ho%73t=mine", {}),
        ("postgres", "postgresql://db/shop/orders?host=", {}),
        ("postgres", "postgresql://db/shop/orders?port=6666", {}),
        ("postgres", "postgresql://db/shop/orders?dbname=loot", {}),
        ("postgres", "postgresql://db/shop/orders?service=other", {}),
        ("postgres", "postgresql://db/shop/orders?passfile=/etc/shadow", {}),
        ("postgres", "postgresql://db/shop/orders?sslkey=/etc/shadow", {}),
        ("postgres", "postgresql://db,mine/shop/orders", {}),
        ("postgres", "postgresql://db:5432,mine:5432/shop/orders", {}),
        ("postgres", "postgresql://db,/shop/orders", {}),
        # Of two @ libpq takes the first, and others the last.
        ("postgres", "postgresql://reader@mine:5432,@db/shop/orders", {}),
        ("postgres", "postgresql://reader@mine@db/shop/orders", {}),
        ("postgres", "postgresql:///shop/orders", {}),
        ("postgres", "postgresql://[::1]:6000/../a", {}),
        ("postgres", "postgresql://[::1]:6000/b/t", {}),
        ("redis", "redis://cache:6380/0", {}),
        ("redis", "redis://cache:6379/0?db=5", {}),
        ("redis", "rediss://cache/0?ssl_keyfile=/etc/shadow", {}),
        ("kafka", "broker:9092/t", {"kafka.sasl.kerberos.keytab": "/etc/krb5.keytab"}),
        ("kafka", "broker:9092/t", {"kafka.sasl.oauthbearer.assertion.private.key.file": "/etc/shadow"}),
        ("postgres", "postgresql://reader@db/shop", {"debezium.database.sslkey": "/etc/shadow"}),
        ("mysql", "postgresql://reader@db/shop", {"debezium.database.ssl.truststore": "/etc/shadow"}),
    ],
)
def test_what_is_not_listed_is_refused(connector: str, location: str, options: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        refuse_unlisted(ALLOWED, connector, location, options)
    assert refused.value.status == 403
    refuse_unlisted(None, connector, location, options)


def test_a_link_that_leads_elsewhere_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("/etc")
    refuse_unlisted([str(tmp_path / "in")], "files", str(tmp_path / "in"), {})
    with pytest.raises(Refusal):
        refuse_unlisted([str(tmp_path / "in")], "files", str(tmp_path / "in" / "link"), {})
