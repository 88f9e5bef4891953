"""A cluster of two workers, and a session on it that somebody else has made, with settings of his own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_cluster import Cluster, why_not

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent
# Each of these would change what a view means, or what is in a file, if it held in our sessions.
OF_THE_USER = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The one cluster of the run."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    # What this process leaves in the shared folder is for executors to read, who are another user.
    before = os.umask(0)
    with Cluster() as made:
        yield made
    os.umask(before)


@pytest.fixture(scope="session")
def spark(cluster: Cluster) -> Iterator[SparkSession]:
    """A session as a user brings it: no Delta, and settings that are not ours."""
    from pyspark.sql import SparkSession

    options = {**cluster.options(), **OF_THE_USER, "spark.ui.enabled": "false"}
    session = SparkSession.builder.master(cluster.url).config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def home_folder(cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """A path for a home that executors can reach."""
    return cluster.shared / request.node.name.replace("[", "-").replace("]", "")
