"""What tests share: one Spark, one set of servers, one object store a run, a home for each test, and who needs Java."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from headrace.storage.objects import Location
from tests.object_store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.local import Servers
    from tests.feed_receiver import Receiver

_UNIT = Path(__file__).parent / "unit"
# The time of an example says something about the machine, and nothing about what is tested.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts a JVM."""
    if _needs_java(item):
        item.add_marker("java")


def _needs_java(item: pytest.Item) -> bool:
    """Everything beside the unit tests has a Spark; of those, whatever is tried over an object store."""
    if _UNIT not in item.path.parents:
        return True
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return "object_store" in getattr(item, "fixturenames", ()) or parameters.get("location") == "object store"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of the run; imported late, so that tests without Spark do not pay for it."""
    from headrace.settings import Settings
    from headrace.spark.session import start_spark

    # Most of what a test asks is planned and compiled once: the quick compiler takes half the processor time for it.
    session = start_spark(Settings(), "-XX:TieredStopAtLevel=1")
    yield session
    session.stop()


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """An open, empty home."""
    import headrace

    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        yield hr


@pytest.fixture
def reopen(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Opens the one home of a test, closing it first where it is open."""
    import headrace

    opened: list[Any] = []

    def again() -> Any:
        if opened:
            opened.pop().close()
        opened.append(headrace.open(str(tmp_path / "home"), spark=spark))
        return opened[0]

    yield again
    if opened:
        opened.pop().close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Where feeds to webhooks go in place of these."""
    from tests.feed_receiver import in_place_of_webhooks

    return in_place_of_webhooks(monkeypatch)


@pytest.fixture(scope="session")
def local_servers() -> Iterator[Servers]:
    """The one Kafka, Connect and PostgreSQL of the run, started by the first test that asks for them."""
    from headrace import local

    with local.start() as servers:
        yield servers


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """The one object store of the run."""
    with ObjectStore() as store:
        yield store


@pytest.fixture(params=["disk", pytest.param("object store", marks=pytest.mark.slow)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty location for a home, of either making."""
    if request.param == "disk":
        return tmp_path
    store: ObjectStore = request.getfixturevalue("object_store")
    return store.location(tmp_path.name)
