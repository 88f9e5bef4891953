"""What tests without Spark share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the run, so nothing waits for the disk; that syncs happen has a test of its own."""
    monkeypatch.setattr("os.fsync", lambda _: None)
