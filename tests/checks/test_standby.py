"""The owner of a home is killed under load while another stands by; `make standby-check` does it three times."""

from __future__ import annotations

import pytest

from tests.checks.standby import run


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(300)
def test_writes_go_on_within_seconds_and_nothing_is_lost_or_doubled() -> None:
    assert run(1, 3.0)
