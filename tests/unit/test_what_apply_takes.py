"""What is not lists of changes by table is refused in words, not by an error of Python."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ChangesRejected
from headrace.intake.changes import refuse_no_changes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"insert": {"id": 1}}], "changes come by table, not as a list"),
        ({"t": {"insert": {"id": 1}}}, "t[0]: a list of changes is wanted, not a dict"),
        ({"t": pa.table({"id": [1]})}, "t[0]: a list of changes is wanted, not a Table"),
        ({"t": (one for one in [{"insert": {"id": 1}}])}, "t[0]: a list of changes is wanted, not a generator"),
        ({"t": "insert"}, "t[0]: a list of changes is wanted, not a str"),
        ({7: []}, "7 is no name of a table"),
    ],
)
def test_what_is_not_changes_by_table_is_told(given: object, said: str) -> None:
    with pytest.raises(ChangesRejected) as error:
        refuse_no_changes(given)
    assert said in error.value.detail
    assert '{"table": [{"insert": row}' in error.value.hint


def test_lists_and_tuples_by_table_are_taken() -> None:
    refuse_no_changes({"t": [{"insert": {"id": 1}}], "u": ()})
