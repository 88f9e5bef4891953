"""Names of relations in the ledger: the users' own, and those of Headrace's hidden state."""

from __future__ import annotations

import re

# What a relation held where its log was cut; ledgers have had this word since before it was called so.
CUT_CONTENT = "#closed"


def cut_content_name(relation: str) -> str:
    """Under which name the log keeps what a relation held, where an epoch left it other columns."""
    return f"{relation}{CUT_CONTENT}"


def is_kept(relation: str) -> bool:
    """Whether the log keeps a relation's rows after they are folded: for readers of older epochs."""
    return not is_hidden(relation) or relation.endswith(CUT_CONTENT)


def is_hidden(relation: str) -> bool:
    """Whether a relation is state of Headrace's own, which no user reads."""
    return "#" in relation or relation.startswith("_headrace")


def plain_name(relation: str) -> str:
    """A relation's name as a name of files that every system takes."""
    return re.sub(r"[^a-z0-9_]", lambda odd: "." if odd.group() == "#" else f"~{ord(odd.group()):x}", relation)
