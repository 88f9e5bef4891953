"""What a source does about changes of its tables' columns: the modes and the names of Flink CDC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headrace.errors import SourceError

Mode = Literal["lenient", "evolve", "try_evolve", "exception", "ignore"]
Tag = Literal[
    "add.column",
    "alter.column.type",
    "create.table",
    "drop.column",
    "drop.table",
    "rename.column",
    "truncate.table",
]
TAGS: tuple[str, ...] = get_args(Tag)
# What lenient does not take unless the lists say otherwise: it takes nothing away.
_LENIENT_LEAVES = "drop.table"


@dataclass(frozen=True)
class Policy:
    """A mode, and the kinds of changes that it is for; all others are ignored."""

    mode: Mode = "lenient"
    accepted: frozenset[str] = frozenset(TAGS)

    def takes(self, tag: Tag) -> bool:
        """Whether changes of a kind are taken, or at least stop the source."""
        return self.mode != "ignore" and tag in self.accepted


def policy_of(options: Mapping[str, Any]) -> Policy:
    """The policy that options tell; SourceError names the one that cannot be so."""
    mode = options.get("schema_change", "lenient")
    if mode not in get_args(Mode):
        raise SourceError(f"schema_change cannot be {mode!r}", hint=f"it is one of {', '.join(get_args(Mode))}")
    include, exclude = options.get("include_schema_changes"), options.get("exclude_schema_changes")
    if mode == "lenient" and include is None and exclude is None:
        exclude = _LENIENT_LEAVES
    included = set(TAGS) if include is None else _tags("include_schema_changes", include)
    excluded = set[str]() if exclude is None else _tags("exclude_schema_changes", exclude)
    if options.get("unknown_columns") == "ignore":
        excluded.add("add.column")
    return Policy(mode, frozenset(included - excluded))


def _tags(option: str, value: Any) -> set[str]:
    """The kinds that a list names, whole or by some of their words: drop is drop.column and drop.table."""
    if not isinstance(value, str):
        raise SourceError(f"{option} cannot be {value!r}", hint=f"write {option} = 'add.column, alter'")
    found: set[str] = set()
    for part in (one.strip().lower() for one in value.split(",")):
        named = {tag for tag in TAGS if f".{part}." in f".{tag}."} if part else set[str]()
        if part and not named:
            raise SourceError(f"{option} names {part!r}, which is no change", hint=f"there are {', '.join(TAGS)}")
        found |= named
    return found
