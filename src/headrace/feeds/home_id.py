"""The id of a home, by which sinks tell its feeds from those of a copy: a file that no backup has."""

from __future__ import annotations

import secrets

from headrace.feeds.progress import FOLDER
from headrace.ledger.durable import replace_file
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location

_NAME = "home_id"


def home_id(home: Location) -> str:
    """Return the id of a home, which its owner makes when it first asks for it."""
    path = home / FOLDER / _NAME
    try:
        return path.read_text()
    except FileNotFoundError:
        made = secrets.token_hex(16)
        make_folder(path.parent)
        replace_file(path, made.encode())
        return made
