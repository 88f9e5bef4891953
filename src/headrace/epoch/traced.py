"""An epoch as a span, with one below it for each of its stages, where traces are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from headrace import tracing
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.tracing import Traces

Note = Callable[[Mapping[str, float]], None]


def _unnoted(_: Mapping[str, float]) -> None:
    """Nobody wants to know."""


_NOTHING: AbstractContextManager[Note] = nullcontext(_unnoted)


def traced_epoch(core: Core, calls: Sequence[Call]) -> AbstractContextManager[Note]:
    """Inside, the seconds of an epoch's stages are noted, for the span that it becomes."""
    traces = tracing.traces()
    return _NOTHING if traces is None else _traced(traces, core, calls)


@contextmanager
def _traced(traces: Traces, core: Core, calls: Sequence[Call]) -> Generator[Note, None, None]:
    began, before, stages = time.time_ns(), core.epoch, dict[str, float]()
    failed: BaseException | None = None
    try:
        yield stages.update
    except BaseException as error:
        failed = error
        raise
    finally:
        # Where nothing moved there was no epoch.
        if failed is not None or core.epoch > before:
            told = {"headrace.epoch": core.epoch if failed is None else before + 1, "headrace.calls": len(calls)}
            traces.past("epoch", began, stages, [call.trace for call in calls], told, failed)
