"""The checks of `make check` that are our own: they find what they look for, and find nothing here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tool", ["licences", "secret_scan"])
def test_the_repository_passes(tool: str) -> None:
    ran = subprocess.run([sys.executable, f"tools/{tool}.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_secrets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from secret_scan import found_in  # pyright: ignore

    # Put together here, so that this file has none.
    secrets = [
        "AKIA" + "Q" * 16,
        "ghp_" + "a1" * 18,
        "hr_0a1b2c3d_" + "x" * 43,
        "postgresql://ann:" + "correct-horse-battery" + "@db/shop",
        "-----BEGIN EC PRIVATE " + "KEY-----\n" + "A" * 60,
        "eyJ" + "a" * 30 + ".eyJ" + "b" * 30 + "." + "c" * 30,
    ]
    for one in secrets:
        assert [line for line, _ in found_in(f"first\nx = '{one}'\n".encode())] == [2], one
        assert found_in(f"x = '{one}'  # no secret: made up".encode()) == [] or "\n" in one
    for text in ("postgresql://user:<password>@host/db", "AKIA-no", "postgres://u:env:NAME@h"):
        assert found_in(text.encode()) == []
