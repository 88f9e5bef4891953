"""Half a minute of the siege; `make siege` runs it for ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.siege import besiege


@pytest.mark.slow
def test_a_short_siege_breaks_no_limit(tmp_path: Path) -> None:
    assert besiege(40, tmp_path) == []
