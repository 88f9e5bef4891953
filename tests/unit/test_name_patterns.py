"""Names in which a * stands for any letters."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase

import pytest

from headrace.capture.name_patterns import name_pattern


def test_names_are_no_patterns_but_for_the_star() -> None:
    assert name_pattern("a.b+c*") == r"a\.b\+c.*"
    assert name_pattern("a.b") == r"a\.b"


@pytest.mark.parametrize("length", range(5))
def test_a_star_stands_for_any_letters(length: int) -> None:
    names = ["".join(letters) for count in range(6) for letters in itertools.product("ab", repeat=count)]
    for letters in itertools.product("ab*", repeat=length):
        wanted = "".join(letters)
        found = re.compile(name_pattern(wanted))
        assert [one for one in names if found.fullmatch(one)] == [one for one in names if fnmatchcase(one, wanted)]
