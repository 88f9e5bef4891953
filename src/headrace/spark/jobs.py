"""The jobs of a Spark, as it remembers them without its own screen."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

_NAME_CHARACTERS = 120


def jobs_of(spark: SparkSession, most: int) -> list[dict[str, Any]]:
    """The newest jobs, newest first: when each began and ended, and how far its tasks are.

    What a query was is not told: its text may be anybody's.
    """
    context: Any = spark.sparkContext
    jvm: Any = context._jvm
    found = context._jsc.sc().statusStore().jobsList(None)
    # In one piece: each question to the JVM costs more than what it is about.
    text = jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper().writeValueAsString(found.take(most))
    return [_job(one) for one in json.loads(text)]


def _job(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": told["jobId"],
        "name": str(told.get("name") or "")[:_NAME_CHARACTERS],
        "status": str(told["status"]).lower(),
        "submitted_at": _moment(told.get("submissionTime")),
        "completed_at": _moment(told.get("completionTime")),
        "stages": len(told.get("stageIds") or ()),
        "tasks": told.get("numTasks", 0),
        "active_tasks": told.get("numActiveTasks", 0),
        "completed_tasks": told.get("numCompletedTasks", 0),
        "failed_tasks": told.get("numFailedTasks", 0),
    }


def _moment(told: str | None) -> str | None:
    """A time as ISO 8601 has it; Spark writes GMT behind."""
    return None if told is None else told.replace("GMT", "+00:00")
