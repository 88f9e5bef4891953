"""What of a home points into a JVM, beside its views: the analyzer, relations as DataFrames, and queries over them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.plans.catalyst import Catalyst
from headrace.reading.files import Files
from headrace.reading.frames import Frames
from headrace.reading.queries import Queries
from headrace.spark.requirements import check_catalog
from headrace.spark.session import jvm_of, large_session, small_session
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.sql.resolve import register


@dataclass(frozen=True)
class Sessions:
    """The sessions of a home in one Spark, with what is made of them."""

    catalyst: Catalyst
    frames: Frames
    queries: Queries


def open_sessions(spark: SparkSession, files: Files) -> Sessions:
    """The sessions of a home in a Spark: one for small changes, one for large work."""
    small = small_session(spark)
    if jvm_of(spark) is None:
        # One that was started here has what its settings name.
        check_catalog(small)
    catalyst = Catalyst(small)
    frames = Frames(Catalyst(large_session(spark)), files)
    register(catalyst, CLOCK, CLOCK_SCHEMA)
    return Sessions(catalyst, frames, Queries(frames))
