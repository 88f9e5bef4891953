"""From format 1, whose ledger delta-rs wrote, to format 2: every file and every commit carries its checksum.

The new ledger is built beside the old one and takes its place by renames; until it is complete, the old one is not
touched, and a step that was interrupted between two renames goes on where it was.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headrace.errors import LedgerError
from headrace.ledger.durable import replace_file
from headrace.ledger.ledger import Ledger
from headrace.storage.folders import make_folder, sync_folder

_NEW = "migrating"
_READY = "ready"
_PARTS = ("deltas", "ledger")


def applies(home: Path) -> bool:
    """Whether the ledger's first commit is not ours, or this step was begun and not ended."""
    if (home / _NEW / _READY).exists():
        return True
    first = home / "ledger" / "_delta_log" / f"{0:020d}.json"
    if not first.exists():
        return False
    try:
        actions = [json.loads(line) for line in first.read_text().splitlines()]
    except ValueError:
        return False
    makers = [action["commitInfo"].get("engineInfo", "") for action in actions if "commitInfo" in action]
    return bool(makers) and not any("headrace" in maker for maker in makers)


def migrate(home: Path) -> None:
    """Build the new ledger, if it is not complete, and put it in the place of the old one."""
    if not (home / _NEW / _READY).exists():
        shutil.rmtree(home / _NEW, ignore_errors=True)
        try:
            _build(home)
        except Exception as error:
            raise LedgerError(
                f"the home {home} was written by an older release and cannot be brought forward",
                detail=f"{error}. Nothing was changed.",
                hint="see that the disk has room and that every file can be read, then open the home again",
            ) from error
        replace_file(home / _NEW / _READY, b"")
    for part in _PARTS:
        new, present, old = home / _NEW / part, home / part, home / f"{part}-format-1"
        if new.exists():
            if present.exists():
                present.rename(old)
            new.rename(present)
            sync_folder(home)
        shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(home / _NEW)
    sync_folder(home)


def _build(home: Path) -> None:
    make_folder(home / _NEW)
    ledger = Ledger(home / _NEW, inline_bytes=0)
    ledger.claim(1)
    rows: list[pa.Table] = []
    for batch in DeltaTable(str(home / "ledger")).to_pyarrow_dataset().to_table().to_batches():
        files = [
            None if name is None else ledger.write_large(epoch, relation, pq.ParquetFile(home / "deltas" / name).read())
            for epoch, relation, name in zip(
                *(batch.column(c).to_pylist() for c in ("epoch", "relation", "file")), strict=True
            )
        ]
        table = pa.Table.from_batches([batch])
        index = table.schema.get_field_index("file")
        rows.append(table.set_column(index, "file", pa.array(files, pa.string())))
    if (home / _NEW / "deltas").exists():
        sync_folder(home / _NEW / "deltas")
    ledger.import_rows(pa.concat_tables(rows))
