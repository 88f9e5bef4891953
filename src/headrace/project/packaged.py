"""The examples that come with Headrace: in a wheel beside its modules, in the sources in their own folder."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import SetupError

MEDALLION = "medallion"
_PACKAGE = Path(__file__).parents[1]


def example_folder(name: str) -> Path:
    """The folder of an example."""
    for folder in (_PACKAGE / "examples" / name, _PACKAGE.parents[1] / "examples" / name):
        if (folder / "headrace.yml").exists():
            return folder
    raise SetupError(
        f"the example {name} is not here",
        detail="It comes with every wheel and with Headrace's sources.",
        hint="install Headrace again, or clone the repository",
    )


def is_in_sources(folder: Path) -> bool:
    """Whether an example lies in Headrace's sources, and not in an installed package, beside which nothing is kept."""
    return folder.parents[1] != _PACKAGE
