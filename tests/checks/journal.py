"""What the outside knows: a line before each call, and one after it returned. It lies outside the home, and a line is
in the file before the next step is taken, so a killed process leaves exactly what it was told."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Told:
    """The epochs of acknowledged actions, in order, and whether one more was begun."""

    epochs: tuple[int, ...]
    begun: bool


class Journal:
    """Actions are numbered from 0; the next one begins only when the last one is settled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, number: int) -> None:
        self._append({"begun": number})

    def acknowledge(self, number: int, epoch: int) -> None:
        self._append({"done": number, "epoch": epoch})

    def read(self) -> Told:
        epochs: list[int] = []
        begun = False
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            entry = json.loads(line)
            if "done" in entry:
                assert entry["done"] == len(epochs), "the journal skips an action"
                epochs.append(entry["epoch"])
            begun = "begun" in entry
        return Told(tuple(epochs), begun)

    def _append(self, entry: dict[str, int]) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(file)
