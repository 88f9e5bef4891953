"""Path parameters that are any text: `{key:text}` in a route also matches slashes and line ends."""

from __future__ import annotations

from starlette.convertors import StringConvertor, register_url_convertor


class TextConvertor(StringConvertor):
    """Any text; Starlette's own `path` ends before a line end, and another route then answers."""

    regex = r"[\s\S]*"


def register_text_paths() -> None:
    """Make `{name:text}` known to Starlette, for routes that are declared after this call."""
    register_url_convertor("text", TextConvertor())
