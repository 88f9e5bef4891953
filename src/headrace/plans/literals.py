"""Rows of constants, read by Spark without a job."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import FAILURES
from headrace.state.arrow_types import conform, spark_schema

_SOURCE = files("headrace.plans").joinpath("literals.java").read_text()


class Literals:
    """Reads VALUES that consist of constants."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst
        self._reader = catalyst.compiled("Literals", _SOURCE)

    def rows(self, values: str, types: Sequence[DataType]) -> pa.Table | None:
        """The rows of a VALUES query cast to these types, or None where it takes more than reading them.

        What Spark would refuse is None as well: it is for the query that asks for more to say why.
        """
        parsed, wanted = self._catalyst.parse_query, spark_schema(types).json()
        try:
            stream = self._reader.literalRows(self._catalyst.jsession, parsed(values), wanted)
        except FAILURES:
            return None
        return None if stream is None else conform(pa.ipc.open_stream(stream).read_all(), types)
