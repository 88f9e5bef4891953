"""`python -m headrace` is the command line."""

from __future__ import annotations

from headrace.cli.main import run

if __name__ == "__main__":
    run()
