"""Which epoch is still whole, when part of the log or of the bases is lost.

    a relation at E = its base at B <= E + the log in (B, E]
                    = its base at B >  E - the log in (E, B]     (hidden state has no log that far back)
                    = the log alone, since the relation began

An epoch is whole if that holds for every relation that it had, hidden state included, and if no definition up to it
is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.ledger.names import is_hidden


@dataclass(frozen=True)
class Span:
    """Epochs from the first to the last."""

    first: int
    last: int

    def meets(self, after: int, until: int) -> bool:
        """Whether it has an epoch after one, up to and including another."""
        return self.first <= until and self.last > after


@dataclass(frozen=True)
class Kept:
    """What is left of a home: heads by epoch, bases by relation, and the epochs whose rows are lost."""

    newest: int
    oldest: int
    compacted: int
    heads: Mapping[int, Mapping[str, Any]]
    lost: list[Span]
    lost_deltas: Mapping[str, list[Span]]
    bases: Mapping[str, int]

    def unexplained(self) -> list[tuple[int, int]]:
        """Kept epochs without a head that no damaged file accounts for, as first and last."""
        missing = [
            epoch
            for epoch in range(self.oldest + 1, self.newest + 1)
            if epoch not in self.heads and not any(span.meets(epoch - 1, epoch) for span in self.lost)
        ]
        return [(missing[0], missing[-1])] if missing else []

    def first_lost_head(self) -> int | None:
        """The first epoch whose definitions may be lost."""
        found: list[int] = []
        for span in self.lost:
            known = range(max(span.first, self.oldest + 1), span.last + 1)
            missing = next((epoch for epoch in known if epoch not in self.heads), None)
            # Of expired epochs only definitions are kept, and a file has those before all else.
            if span.last <= self.oldest or (missing is not None and span.first <= self.oldest):
                found.append(span.first)
            elif missing is not None:
                found.append(missing)
        return min(found, default=None)

    def reaches(self, relation: str, began: int, epoch: int) -> bool:
        """Whether a relation's rows at an epoch can be had."""
        hidden = is_hidden(relation)
        base = self.bases.get(relation)
        if base is not None and base >= began:
            if base <= epoch and not self._loses(relation, base, epoch):
                return True
            if base > epoch and not hidden and not self._loses(relation, epoch, base):
                return True
        return began > (self.compacted if hidden else self.oldest) and not self._loses(relation, began - 1, epoch)

    def _loses(self, relation: str, after: int, until: int) -> bool:
        spans = (*self.lost, *self.lost_deltas.get(relation, ()))
        return any(span.meets(after, until) for span in spans)


def newest_whole_epoch(kept: Kept) -> int | None:
    """The newest epoch that everything can still be had for."""
    began = _beginnings(kept.heads)
    turns = [epoch for epoch, _ in began]
    lost_head = kept.first_lost_head()
    last = kept.newest if lost_head is None else min(kept.newest, lost_head - 1)
    # The empty home that everything began with is of no use to anyone.
    for epoch in range(last, max(kept.oldest, min(kept.newest, 1)) - 1, -1):
        index = bisect_right(turns, epoch)
        relations = began[index - 1][1] if index else {}
        if all(kept.reaches(relation, start, epoch) for relation, start in relations.items()):
            return epoch
    return None


def _beginnings(heads: Mapping[int, Mapping[str, Any]]) -> list[tuple[int, dict[str, int]]]:
    """After each epoch that made or dropped something: the relations there are, and when each began."""
    turns: list[tuple[int, dict[str, int]]] = []
    current: dict[str, int] = {}
    for epoch, head in sorted(heads.items()):
        if not any(head.get(word) for word in ("define", "drop", "reset")):
            continue
        gone = set(head.get("drop", ()))
        remade = {one["name"] for one in head.get("define", ()) if one["kind"] == "view"}
        current = {
            name: start
            for name, start in current.items()
            if name not in gone and not ("#" in name and name.split("#")[0] in gone | remade)
        }
        current.update(dict.fromkeys(head.get("reset", ()), epoch))
        turns.append((epoch, dict(current)))
    return turns
