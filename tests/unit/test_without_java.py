"""The tests beside this one start no JVM: neither Spark's nor any other."""

from __future__ import annotations

import subprocess

import pytest

from headrace.settings import Settings
from headrace.spark.java import find_java
from headrace.spark.session import start_spark


def test_spark_is_not_started_here() -> None:
    with pytest.raises(RuntimeError, match=r"not marked with java starts .*spark-submit"):
        start_spark(Settings())


def test_java_is_not_started_here() -> None:
    with pytest.raises(RuntimeError, match=r"not marked with java starts .*java"):
        subprocess.run([find_java().executable, "-version"], check=True, capture_output=True)
