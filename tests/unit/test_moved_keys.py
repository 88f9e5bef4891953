"""An UPDATE of keys may swap and move them, but lays no row onto another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ChangesRejected
from headrace.state.delta import consolidate
from headrace.statements.moved_keys import refuse_taken_keys
from tests.small_engine import table

HELD = [1, 2, 3]


def update(moves: dict[int, int | None]) -> None:
    made = table("t")
    content = pa.table([HELD, [0] * len(HELD)], schema=made.store.schema)
    made.store.add(consolidate(content, np.ones(len(HELD), dtype=np.int64)))
    before = pa.table([list(moves), [0] * len(moves)], schema=made.store.schema)
    after = pa.table([list(moves.values()), [1] * len(moves)], schema=made.store.schema)
    refuse_taken_keys(made, made.store.snapshot(), before, after)


@pytest.mark.parametrize(
    "moves", [{1: 1}, {1: 9}, {1: 2, 2: 1}, {1: 2, 2: 3, 3: 4}, {2: 2, 3: 3}, {1: None, 2: None}, {}]
)
def test_rows_may_move_to_free_keys_and_change_places(moves: dict[int, int | None]) -> None:
    update(moves)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({1: 2}, "t[0]: the key (2) belongs to another row"),
        ({1: 9, 2: 9}, "t[0]: the key (9) is given to two rows; t[1]: the key (9) is given to two rows"),
        ({1: 2, 2: 3}, "t[1]: the key (3) belongs to another row"),
    ],
)
def test_no_row_is_laid_onto_another(moves: dict[int, int | None], said: str) -> None:
    with pytest.raises(ChangesRejected) as error:
        update(moves)
    assert error.value.detail == said
