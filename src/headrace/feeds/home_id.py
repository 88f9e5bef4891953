"""The id of a home, by which sinks tell its feeds from those of a copy.

A backup has it for `restore --live` alone, which takes the place of the home.
"""

from __future__ import annotations

import secrets

from headrace.ledger.backup import HOME_ID
from headrace.ledger.durable import replace_file
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location


def home_id(home: Location) -> str:
    """Return the id of a home, which its owner makes when it first asks for it."""
    path = home / HOME_ID
    try:
        return path.read_text()
    except FileNotFoundError:
        made = secrets.token_hex(16)
        make_folder(path.parent)
        replace_file(path, made.encode())
        return made
