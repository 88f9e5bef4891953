"""`headrace demo`: the medallion from nothing, on this machine."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer

from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption
from headrace.project.packaged import MEDALLION, example_folder


def demo(
    scale: Annotated[float, typer.Option(min=0.001, help="1 is about 0.7 M orders and 3 M clicks.")] = 0.1,
    hours: Annotated[int, typer.Option(min=1, max=150, help="Hours of changes to push.")] = 6,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Generate a shop, fill 22 relations, push hours of changes, and prove every view right.

    Takes a few minutes; nothing outside the example's own data folder is touched.

    Examples:

        headrace demo

        headrace demo --scale 0.02 --hours 3
    """
    with errors_reported(as_json=as_json, debug=debug):
        program = example_folder(MEDALLION) / "demo.py"
    command = [sys.executable, str(program), "--scale", str(scale), "--hours", str(hours)]
    raise typer.Exit(subprocess.run([*command, *(["--json"] if as_json else [])]).returncode)
