"""docs/reference/settings.md is made from the settings; to make it anew, run this file."""

from __future__ import annotations

from pathlib import Path

from headrace.settings import RELOADED, Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
_HEAD = """# Settings

Each is given to `headrace.open(home, name=value)`, under `settings` in headrace.yml, or by the environment as
`HEADRACE_<NAME>`; `headrace serve --settings FILE` reads them from YAML, a line each. Durations are written as
`00:00:30` or `PT30S`, lists as JSON. Those with a ↻ a server takes on while it runs, from that file or from
headrace.yml, on SIGHUP and by `headrace reload`. This page is made from `headrace.Settings`.
"""


def page() -> str:
    """The page as it must be."""
    lines = [_HEAD, "| name | default | what it does |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "none" if field.default is None else str(field.get_default(call_default_factory=True))
        default = default.replace(str(Path.home()), "~")
        said = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{name}`{' ↻' if name in RELOADED else ''} | {default.replace('|', '')} | {said} |")
    return "\n".join(lines) + "\n"


def test_the_reference_tells_every_setting_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"run python {Path(__file__).name}"
    assert Settings.model_fields.keys() >= RELOADED
    assert all(field.description for field in Settings.model_fields.values())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
