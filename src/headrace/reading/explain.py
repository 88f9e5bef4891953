"""EXPLAIN: which rule follows each operator of a view, and why something is not incremental."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog.catalog import View


@dataclass(frozen=True)
class Explanation:
    """How a view is kept current."""

    name: str
    incremental: bool
    reasons: list[str]
    text: str

    def __str__(self) -> str:
        return self.text


def explain_view(view: View) -> Explanation:
    """The rules of a view, operator by operator."""
    lines = [f"view {view.name}: {'incremental' if view.incremental else 'not incremental'}"]
    lines.extend(view.operators or ["  full recompute with a diff"])
    lines.extend(f"because {reason}" for reason in view.reasons)
    lines.extend(f"note: {note}" for note in view.resolved.ties)
    if view.resolved.uses_clock:
        lines.append("note: now() and current_date follow the epoch's clock")
    return Explanation(view.name, view.incremental, list(view.reasons), "\n".join(lines))
