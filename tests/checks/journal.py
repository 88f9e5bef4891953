"""What the outside knows: a line before each call, and one after it returned or raised. It lies outside the home, and a
line is in the file before the next step is taken, so a killed process leaves exactly what it was told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

# The number of an action, and the index of a call in it; a statement has index 0.
CallId: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Told:
    """The epochs of what was acknowledged, by the number of the action and the index of the call in it.

    Refused are the calls of the last action of which it was said that nothing of them is committed.
    """

    epochs: Mapping[CallId, int]
    begun: int
    refused: frozenset[CallId] = frozenset()


class Journal:
    """Actions are numbered from 0; the next one begins only when the last one is settled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, number: int) -> None:
        self._append({"begun": number})

    def acknowledge(self, call: CallId, epoch: int) -> None:
        self._append({"done": call[0], "call": call[1], "epoch": epoch})

    def refuse(self, call: CallId) -> None:
        self._append({"refused": call[0], "call": call[1]})

    def read(self) -> Told:
        epochs: dict[CallId, int] = {}
        refused: set[CallId] = set()
        begun = 0
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            entry = json.loads(line)
            if "done" in entry:
                call = entry["done"], entry["call"]
                assert epochs.setdefault(call, entry["epoch"]) == entry["epoch"], f"{call} has two epochs"
            elif "refused" in entry:
                refused.add((entry["refused"], entry["call"]))
            else:
                begun = entry["begun"] + 1
                # Sent again, it may come to be.
                refused.clear()
        return Told(epochs, begun, frozenset(refused))

    def _append(self, entry: dict[str, int]) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(file)
