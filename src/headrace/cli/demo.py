"""`headrace demo`: the medallion from nothing, on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption
from headrace.project.packaged import MEDALLION, example_folder, is_in_sources


def demo(
    scale: Annotated[float, typer.Option(min=0.001, help="1 is about 0.7 M orders and 3 M clicks.")] = 0.1,
    hours: Annotated[int, typer.Option(min=1, max=150, help="Hours of changes to push.")] = 6,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Generate a shop, fill 22 relations, push hours of changes, and prove every view right.

    Takes a few minutes; nothing outside the example's own data folder is touched: beside the example in
    Headrace's sources, else headrace-demo in the present folder.

    Examples:

        headrace demo

        headrace demo --scale 0.02 --hours 3
    """
    with errors_reported(as_json=as_json, debug=debug):
        folder = example_folder(MEDALLION)
    command = [sys.executable, str(folder / "demo.py"), "--scale", str(scale), "--hours", str(hours)]
    if not is_in_sources(folder):
        command += ["--data", str(Path.cwd() / "headrace-demo")]
    raise typer.Exit(subprocess.run([*command, *(["--json"] if as_json else [])]).returncode)
