"""Which licences the installed distributions have: those that fit Apache-2.0 pass, any other is named and fails."""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distributions

# Permissive, or weakly copyleft as far as a library is used and not changed.
_FIT = re.compile(
    r"apache|mit\b|bsd|isc\b|psf|python software foundation|mpl|mozilla public|unlicense|zlib|cc0|0bsd|lgpl"
    r"|lesser general public|historical permission|hpnd|postgresql|zpl|zope|public domain|artistic|wtfpl",
    re.IGNORECASE,
)
# Tools of the tests that are neither shipped nor imported by Headrace, by name, with why they may be there.
_EXEMPT: dict[str, str] = {}


def licence_of(one: Distribution) -> str:
    """What a distribution says of its licence: the expression, the classifiers, or the first line of the field."""
    meta = one.metadata
    classifiers = [text.rpartition(" :: ")[2] for text in meta.get_all("Classifier") or () if "License ::" in text]
    first = (meta.get("License") or "").strip().splitlines()[:1]
    return meta.get("License-Expression") or ", ".join(classifiers) or (first[0][:80] if first else "") or _by_text(one)


def _by_text(one: Distribution) -> str:
    """The first lines of the licence that a distribution brings, where it says nothing else."""
    for file in one.files or ():
        if re.search(r"licen[cs]e|copying", file.name, re.IGNORECASE):
            text = (one.locate_file(file)).read_text(errors="replace")  # pyright: ignore
            return " ".join(text.split())[:200]
    return ""


def main() -> int:
    """Name what does not fit."""
    named = {one.metadata["Name"].lower(): licence_of(one) for one in distributions() if one.metadata["Name"]}
    wrong = {name: text for name, text in sorted(named.items()) if not _FIT.search(text) and name not in _EXEMPT}
    for name, text in wrong.items():
        print(f"{name}: {text or 'says nothing of its licence'}")
    print(f"{len(named)} distributions, {len(wrong)} with a licence to look at")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
