"""Names of tables and topics in which a * stands for any letters, however many stars there are."""

from __future__ import annotations

import re


def name_pattern(name: str) -> str:
    """A name in which a * stands for any letters, as a regular expression that Java and Python read alike.

    A part between two stars is looked for once, where it comes first: to go back and look for it further on finds
    nothing more, and takes a time that grows with each star by the length of the name.
    """
    first, *others = (re.sub(r"([^\w])", r"\\\1", part) for part in name.split("*"))
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>.*?{part})" for part in between if part) + ".*" + last
