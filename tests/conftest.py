"""What tests with Spark share: one Spark for the whole run, a fresh home for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.objects import Place
from tests.object_store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of the run; imported late, so that tests without Spark do not pay for it."""
    from headrace.session import start_spark
    from headrace.settings import Settings

    session = start_spark(Settings())
    yield session
    session.stop()


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """An open, empty home."""
    import headrace

    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        yield hr


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """The one object store of the run."""
    with ObjectStore() as store:
        yield store


@pytest.fixture(params=["disk", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place for a home, of either making."""
    if request.param == "disk":
        return tmp_path
    store: ObjectStore = request.getfixturevalue("object_store")
    return store.place(tmp_path.name)
