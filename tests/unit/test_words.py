"""docs/words.md lists the words that are ours: each is said in one sentence, and is a name in the code."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ENTRY = re.compile(r"^\| \*\*(.+)\*\* \| (.+) \|$", re.MULTILINE)


def entries() -> dict[str, str]:
    found = _ENTRY.findall((ROOT / "docs" / "words.md").read_text(encoding="utf-8"))
    assert len({word for word, _ in found}) == len(found)
    return dict(found)


def words_in_names() -> set[str]:
    """Every word that some name of the code is made of."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NAME:
                found.update(word.lower() for word in re.findall(r"[A-Z]?[a-z]+", token.string))
    return found


def test_each_word_is_told_in_one_sentence() -> None:
    for word, told in entries().items():
        assert re.fullmatch(r"[A-Z][^.]*\.", told), word


def test_each_word_is_a_name_in_the_code() -> None:
    known = words_in_names()
    missing = [word for entry in entries() for word in entry.split() if not {word, f"{word}s"} & known]
    assert missing == []
