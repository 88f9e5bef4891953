"""One epoch at work: net changes of tables in, net changes of everything that depends on them out."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait

from pyspark.errors import AnalysisException

from headrace.catalog.catalog import Catalog, View
from headrace.epoch.fill import refill
from headrace.epoch.threads import ViewThreads
from headrace.errors import HeadraceError, ViewEvaluationError
from headrace.ledger.written import Written
from headrace.plans.failures import FAILURES, data_fault, first_line, refuses_plan, work_failed
from headrace.progress import Listener, silent
from headrace.reading.frames import Frames
from headrace.rules.base import NeedsFill
from headrace.sql.one_row import CLOCK
from headrace.state.delta import Delta, empty
from headrace.state.state import State
from headrace.state.store import Store

_log = logging.getLogger("headrace.views")
# From so many rows on, what comes into empty relations is followed by a fill, which reads no more than the rule would.
_FIRST_FILL = 20_000


class Work:
    """The deltas of one epoch, worked out view by view; nothing is changed until the epoch is committed."""

    def __init__(self, stores: Mapping[str, Store], bound: int, tell: Listener = silent) -> None:
        self._stores = stores
        self.tell = tell
        self._before = {name: store.snapshot() for name, store in stores.items()}
        self._deltas: dict[str, Delta] = {}
        self._written: dict[str, Written] = {}
        self._after: dict[str, tuple[Delta, State]] = {}
        self._bound = bound

    @property
    def bound(self) -> int:
        """How many rows a rule may bring to the driver."""
        return self._bound

    @property
    def deltas(self) -> dict[str, Delta]:
        """All deltas so far, hidden ones included."""
        return self._deltas

    def before(self, store: str) -> State:
        """What a store held at the end of the epoch before."""
        return self._before[store]

    def after(self, store: str) -> State:
        """What a store will hold at the end of this epoch."""
        delta = self._deltas.get(store)
        if delta is None or len(delta) == 0:
            return self._before[store]
        known, after = self._after.get(store, (None, None))
        if after is None or known is not delta:
            # The same state each time: whatever is made of it, a file or an index, is made once.
            after = self._before[store].plus(delta)
            self._after[store] = delta, after
        return after

    def delta_of(self, relation: str) -> Delta:
        """The relation's delta in this epoch."""
        found = self._deltas.get(relation)
        return empty(self._before[relation].schema) if found is None else found

    def record(self, store: str, delta: Delta) -> None:
        """Record the delta of a relation or a hidden store."""
        self._deltas[store] = delta

    def record_written(self, store: str, written: Written) -> None:
        """Record a delta that lies in files already."""
        self.record(store, written.delta)
        self._written[store] = written

    def to_commit(self) -> dict[str, Delta | Written]:
        """All deltas as the ledger takes them: those that lie in files already with their files."""
        found: dict[str, Delta | Written] = dict(self._deltas)
        for name, written in self._written.items():
            if self._deltas.get(name) is written.delta:
                found[name] = written
        return found

    def recorded(self, store: str) -> Delta | None:
        """The delta of a hidden store, if it was already worked out in this epoch."""
        return self._deltas.get(store)

    def changed(self, relation: str) -> bool:
        """Whether a relation has a delta in this epoch."""
        delta = self._deltas.get(relation)
        return delta is not None and len(delta) > 0


def follow(work: Work, catalog: Catalog, frames: Frames, threads: ViewThreads, but: Collection[str] = ()) -> None:
    """Bring every view that depends on a change up to date, but for those that are filled otherwise.

    Views that do not read each other are worked out side by side.
    """
    order = [view for view in catalog.views() if view.name not in but]
    waiting = {view.name: view for view in order}
    running: dict[Future[None], str] = {}
    failures: dict[str, BaseException] = {}
    while True:
        under_way = set(running.values())
        for view in list(waiting.values()):
            if any(name in waiting or name in under_way for name in view.resolved.reads):
                continue
            del waiting[view.name]
            reads = [*view.resolved.reads, *([CLOCK] if view.resolved.uses_clock else [])]
            if any(work.changed(name) for name in reads):
                running[threads.submit(follow_view, work, catalog, frames, threads, view)] = view.name
                under_way.add(view.name)
        if not running:
            break
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            name, error = running.pop(future), future.exception()
            if error is not None:
                failures[name] = error
                waiting.clear()
    for view in order:
        if view.name in failures:
            raise failures[view.name]


def follow_view(work: Work, catalog: Catalog, frames: Frames, threads: ViewThreads, view: View) -> None:
    """Work out one view's delta: by its rule, or, where that reads too much or cannot be asked, by a fill."""
    try:
        if view.rule is not None and not _is_large(work, view):
            try:
                work.record(view.name, view.rule.delta(work))
                return
            except (NeedsFill, AnalysisException) as error:
                if isinstance(error, AnalysisException):
                    if not refuses_plan(error):
                        raise
                    _log.warning(
                        "view %s is filled anew, for Spark refuses a plan: %s",
                        view.name,
                        first_line(error),
                        extra={"view": view.name},
                    )
                for name in view.hidden:
                    work.deltas.pop(name, None)
        with threads.one_fill:
            refill(work, catalog, frames, view)
    except FAILURES as error:
        raise evaluation_error(view.name, error) from None


def _is_large(work: Work, view: View) -> bool:
    """Whether a fill is cheaper than the rule: the change is large in itself, or it is all that there is to read."""
    changes = [len(work.delta_of(name)) for name in view.resolved.reads]
    held = sum(work.before(name).size for name in view.resolved.reads)
    return max(changes, default=0) > work.bound or (held == 0 and sum(changes) > _FIRST_FILL)


def evaluation_error(view: str, error: Exception, defining: bool = False) -> HeadraceError:
    """Spark's failure inside a view as ours: of the rows, those of a change or those that a new view finds, or not."""
    fault = data_fault(error)
    if fault is None:
        return work_failed(f"view {view}", error)
    guard = "guard the expression in the view (NULLIF, try_cast, try_divide)"
    return ViewEvaluationError(
        f"view {view} cannot be computed from what its tables hold"
        if defining
        else f"view {view} cannot be computed for this change",
        view=view,
        expression=fault.expression,
        detail=(f"In {fault.expression!r}: " if fault.expression else "") + fault.words,
        hint=f"{guard}, or mend the rows that it fails on" if defining else f"mend the change, or {guard}",
    )
