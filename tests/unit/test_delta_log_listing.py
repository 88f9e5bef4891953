"""A log that is read while another writes to it: a list of its files may leave commits out, and is made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.errors import LedgerError
from headrace.ledger import delta_log
from headrace.ledger.delta_log import DeltaFolder
from headrace.storage.objects import Location


@pytest.mark.parametrize(("gaps", "is_read"), [(1, True), (4, True), (5, False)])
def test_a_list_with_a_gap_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaps: int, is_read: bool
) -> None:
    left = gaps

    def listed(path: Location) -> DeltaTable:
        nonlocal left
        left -= 1
        if left >= 0:
            raise DeltaError("expected contiguous commit files, but found a gap")
        raise delta_log.TableNotFoundError(str(path))

    monkeypatch.setattr(delta_log, "delta_table", listed)
    log = DeltaFolder(tmp_path / "t", {}, ())
    if is_read:
        assert not log.load()
    else:
        with pytest.raises(LedgerError, match="cannot be read"):
            log.load()
