"""Columns of a source that have changed: what is told, and the ALTER TABLE that follows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from headrace.capture.described import DescribedColumn
from headrace.capture.messages import Origin, Position
from headrace.capture.moved_columns import column_for, takes
from headrace.errors import SourceError
from headrace.intake.table import TableContract
from headrace.sources.column_changes import KnownColumns, changes_between, exact_steps, kept_steps
from headrace.sources.schema_policy import TAGS, policy_of

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
TABLE = TableContract(
    "t", StructType([StructField("id", INT, False), StructField("a", INT, False), StructField("Own", TEXT)]), ("id",)
)


def columns(**types: Any) -> tuple[DescribedColumn, ...]:
    return tuple(DescribedColumn(name, kind) for name, kind in types.items())


def found(known: Any, new: Any, **renamed: str) -> list[str]:
    return [str(one) for one in changes_between(TABLE, known, new, renamed)]


def steps(make: Any, known: Any, new: Any, **renamed: str) -> list[str]:
    changes = changes_between(TABLE, known, new, renamed)
    return [type(one).__name__ for change in changes for one in make(TABLE, change)]


def test_what_was_never_seen_counts_only_where_the_table_lacks_it() -> None:
    assert found(None, columns(id=INT, a=INT)) == []
    # The table was declared so: neither its own column nor another type is a change of the source.
    assert found(None, columns(ID=LONG, a=TEXT)) == []
    assert found(None, columns(id=INT, A=INT, q=LONG)) == ["column q BIGINT was added"]


def test_changes_of_a_known_source() -> None:
    known = columns(id=INT, a=INT)
    assert found(known, known) == []
    assert found(known, columns(id=INT)) == ["column a was dropped"]
    assert found(known, columns(id=INT, a=LONG)) == ["column a is BIGINT now"]
    assert found(known, columns(id=INT, b=INT)) == ["column b INT was added", "column a was dropped"]
    assert found(known, columns(id=INT, b=INT), a="b") == ["column a is called b now"]
    # What the table has no column for was dropped there by hand, or left out on purpose.
    assert found(columns(id=INT, a=INT, x=INT), columns(id=INT, a=INT, x=INT)) == []
    assert found(columns(id=INT, a=INT, x=INT), columns(id=INT, a=INT)) == []


def test_steps_that_take_all_or_take_nothing_away() -> None:
    known = columns(id=INT, a=INT)
    assert steps(exact_steps, known, columns(id=INT)) == ["DropColumn"]
    assert steps(kept_steps, known, columns(id=INT)) == ["DropNotNull"]
    assert steps(exact_steps, known, columns(id=INT, b=INT), a="b") == ["RenameColumn"]
    assert steps(kept_steps, known, columns(id=INT, b=INT), a="b") == ["AddColumn", "DropNotNull"]
    assert steps(kept_steps, known, columns(id=INT, a=LONG)) == ["AlterColumnType"]
    assert steps(kept_steps, known, columns(id=INT, a=TEXT)) == ["AddColumn", "DropNotNull"]
    assert steps(exact_steps, known, columns(id=INT, a=TEXT)) == ["AlterColumnType"]


def test_values_of_a_type_that_a_column_cannot_become_go_to_one_beside_it() -> None:
    held = {"a": ("a", INT), "a_string": ("a_string", TEXT)}
    assert column_for("a", TEXT, held) == "a_string"
    assert column_for("a", INT, held) == "a"
    assert column_for("a", LONG, held) == "a"
    assert takes(TEXT, INT)
    assert takes(LONG, INT)
    assert takes(DecimalType(20, 0), LONG)
    assert not takes(INT, LONG)
    assert not takes(INT, TimestampType())


def test_columns_of_an_older_record_change_nothing() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    known = KnownColumns((), (5, 7), at)
    assert known.is_after(Origin(position=Position("", (5, 6))))
    assert not known.is_after(Origin(position=Position("", (5, 7))))
    assert known.is_after(Origin(committed_at=datetime(2025, 1, 1, tzinfo=UTC)))
    assert not known.is_after(Origin())


def test_policies() -> None:
    assert policy_of({}).mode == "lenient"
    assert policy_of({}).accepted == set(TAGS) - {"drop.table"}
    assert policy_of({"exclude_schema_changes": ""}).accepted == set(TAGS)
    assert policy_of({"schema_change": "evolve"}).accepted == set(TAGS)
    only = policy_of(
        {"schema_change": "evolve", "include_schema_changes": "column, create", "exclude_schema_changes": "drop"}
    )
    assert only.accepted == {"add.column", "alter.column.type", "rename.column", "create.table"}
    assert not policy_of({"schema_change": "ignore"}).takes("add.column")
    assert not policy_of({"unknown_columns": "ignore"}).takes("add.column")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema_change": "evolv"}, "schema_change cannot be"),
        ({"include_schema_changes": "add.colum"}, "which is no change"),
        ({"exclude_schema_changes": True}, "cannot be True"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        policy_of(options)
