"""What a statement comes to, as the JSON that the owner of a home answers another process with."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.epoch.receipt import Receipt

Result = pa.Table | Receipt | None


def to_answer(result: Result) -> dict[str, Any]:
    """The result of a statement; rows travel as an Arrow stream, so that no value changes on the way."""
    if result is None:
        return {}
    if isinstance(result, Receipt):
        return {"receipt": result.to_json()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as writer:
        writer.write_table(result)
    return {"rows": base64.b64encode(sink.getvalue()).decode()}


def from_answer(answer: Mapping[str, Any]) -> Result:
    """The result that an answer holds."""
    if "receipt" in answer:
        return Receipt.from_json(answer["receipt"])
    if "rows" in answer:
        return pa.ipc.open_stream(base64.b64decode(answer["rows"])).read_all()
    return None
