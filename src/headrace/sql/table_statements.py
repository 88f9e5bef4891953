"""CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.errors import StatementError
from headrace.sql.column_types import read_type
from headrace.sql.names import Name
from headrace.sql.reader import Reader
from headrace.sql.syntax import (
    AddColumn,
    AlterColumnType,
    AlterTable,
    ColumnDefinition,
    CreateTable,
    DropColumn,
    DropNotNull,
    RenameColumn,
)

CREATE_FORM = "CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING NOT NULL, ...) [SEQUENCE BY column]"
ALTER_FORM = (
    "ALTER TABLE t ADD COLUMN c TYPE | RENAME COLUMN a TO b | DROP COLUMN c | ALTER COLUMN c TYPE wider | "
    "ALTER COLUMN c DROP NOT NULL"
)

_COLUMN_OPTIONS = ("NOT NULL", "PRIMARY KEY", "COMMENT")
_COLUMN_WORDS = ("NOT", "NULL", "PRIMARY", "COMMENT")
_UNSUPPORTED_COLUMN_OPTIONS = {
    "DEFAULT": "leave it out; a column that an INSERT does not name becomes NULL",
    "GENERATED": "compute the column in a view",
    "UNIQUE": "only a PRIMARY KEY is kept unique",
    "CHECK": "filter in a view",
    "REFERENCES": "leave it out; references are not enforced",
    "FIRST": "a new column is always the last",
    "AFTER": "a new column is always the last",
}
_UNSUPPORTED_TABLE_OPTIONS = {
    "AS": "create the table with its columns, then INSERT INTO it; or create a view",
    "LIKE": "write the columns out",
    "USING": "leave it out; every table is kept as Delta",
    "PARTITIONED": "leave it out; the layout is chosen for you",
    "CLUSTERED": "leave it out; the layout is chosen for you",
    "CLUSTER": "leave it out; the layout is chosen for you",
    "LOCATION": "leave it out; every table lies in the home",
    "STORED": "leave it out; every table is kept as Delta",
    "ROW": "leave it out; every table is kept as Delta",
    "TBLPROPERTIES": "leave it out",
    "OPTIONS": "leave it out",
    "COMMENT": "comment the columns, or write an SQL comment",
}


@dataclass(frozen=True)
class _Column:
    definition: ColumnDefinition
    is_key: bool


def read_create_table(reader: Reader, sql: str, line: int, column: int) -> CreateTable:
    """What stands after CREATE TABLE, checked against itself: keys and sequence name its own columns."""
    reader.form = CREATE_FORM
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.relation("table", new=True)
    _refuse_table_option(reader)
    reader.expect_symbol("(")
    columns: list[ColumnDefinition] = []
    known: set[str] = set()
    key: list[Name] | None = None
    while True:
        if _at_table_constraint(reader):
            found = _read_table_constraint(reader)
            if key is not None:
                raise _at(found[0], "the primary key is given twice", "give it once, as PRIMARY KEY (a, b)")
            key = found
        else:
            added = _read_column(reader)
            definition = added.definition
            if definition.name in known:
                raise _at(
                    definition,
                    f"column '{definition.spelled}' is defined twice",
                    "names do not differ by case",
                )
            columns.append(definition)
            known.add(definition.name)
            if added.is_key:
                if key is not None:
                    raise _at(
                        definition,
                        "the primary key is given twice",
                        "for several columns write PRIMARY KEY (a, b)",
                    )
                key = [Name(definition.name, definition.spelled, definition.line, definition.column)]
        if not reader.accept_symbol(","):
            break
    if not reader.accept_symbol(")"):
        raise reader.expected("','", "')'", *(() if not columns else _COLUMN_OPTIONS))
    if not columns:
        raise reader.fail("a table needs at least one column")
    key = key or []
    for part in key:
        _known(part, columns, "primary key")
    sequence_by = _read_sequence(reader, columns, has_key=bool(key))
    _refuse_table_option(reader)
    reader.expect_end()
    key_names = tuple(part.name for part in key)
    return CreateTable(
        sql=sql,
        line=line,
        column=column,
        name=name.name,
        spelled=name.spelled,
        columns_ddl=tuple(replace(c, not_null=c.not_null or c.name in key_names) for c in columns),
        primary_key=key_names,
        sequence_by=sequence_by,
        if_not_exists=if_not_exists,
    )


def read_alter_table(reader: Reader, sql: str, line: int, column: int) -> AlterTable:
    """What stands after ALTER TABLE."""
    reader.form = ALTER_FORM
    table = reader.relation("table").name
    found: AlterTable
    if reader.accept("ADD"):
        if reader.at("COLUMNS") or (reader.at("COLUMN") and reader.at_symbol("(", 1)):
            raise reader.unsupported("columns are added one at a time", hint="write ALTER TABLE t ADD COLUMN c TYPE")
        if reader.at("CONSTRAINT") or reader.at("PRIMARY"):
            raise reader.unsupported(
                "the key of a table cannot be changed",
                hint="create a new table with that key and INSERT INTO it",
            )
        reader.expect("COLUMN")
        added = _read_column(reader)
        if added.is_key:
            raise _at(
                added.definition,
                "the key of a table cannot be changed",
                "create a new table with that key and INSERT INTO it",
            )
        found = AddColumn(sql=sql, line=line, column=column, table=table, definition=added.definition)
    elif reader.accept("RENAME"):
        if reader.at("TO"):
            raise reader.unsupported("tables cannot be renamed", hint="create a new table and INSERT INTO it")
        reader.expect("COLUMN")
        old = reader.column()
        reader.expect("TO")
        new = reader.column(new=True)
        found = RenameColumn(
            sql=sql,
            line=line,
            column=column,
            table=table,
            old=old.name,
            new=new.name,
            new_spelled=new.spelled,
        )
    elif reader.accept("DROP"):
        if reader.at("COLUMNS"):
            raise reader.unsupported("columns are dropped one at a time", hint="write ALTER TABLE t DROP COLUMN c")
        reader.expect("COLUMN")
        if_exists = reader.accept("IF", "EXISTS")
        dropped = reader.column().name
        found = DropColumn(sql=sql, line=line, column=column, table=table, column_name=dropped, if_exists=if_exists)
    elif reader.accept("ALTER") or reader.accept("CHANGE"):
        reader.expect("COLUMN")
        altered = reader.column().name
        if reader.accept("DROP", "NOT", "NULL"):
            reader.expect_end()
            return DropNotNull(sql=sql, line=line, column=column, table=table, column_name=altered)
        if reader.keyword() in ("SET", "DROP", "COMMENT", "FIRST", "AFTER"):
            raise reader.unsupported(
                "only the type of a column can be altered, and NOT NULL be dropped",
                hint="write ALTER TABLE t ALTER COLUMN c TYPE wider, or ALTER COLUMN c DROP NOT NULL",
            )
        reader.expect("TYPE")
        found = AlterColumnType(
            sql=sql, line=line, column=column, table=table, column_name=altered, type_text=read_type(reader)
        )
    elif reader.keyword() in ("SET", "UNSET", "CLUSTER", "RECOVER", "REPLACE"):
        raise reader.unsupported(f"ALTER TABLE {reader.keyword()} is not offered")
    else:
        raise reader.expected("ADD", "RENAME", "DROP", "ALTER")
    reader.expect_end()
    return found


def _read_column(reader: Reader) -> _Column:
    name = reader.column(new=True)
    if reader.at_end or reader.at_symbol(",") or reader.at_symbol(")") or reader.keyword() in _COLUMN_WORDS:
        raise reader.fail(f"column '{name.spelled}' has no type")
    type_text = read_type(reader)
    not_null = is_key = False
    comment: str | None = None
    while not (reader.at_end or reader.at_symbol(",") or reader.at_symbol(")")):
        if not not_null and reader.accept("NOT", "NULL"):
            not_null = True
        elif not is_key and _accept_column_key(reader):
            is_key = True
        elif comment is None and reader.accept("COMMENT"):
            comment = reader.string("the comment as a string")
        elif reader.at("NULL"):
            raise reader.fail(
                "NULL is not a column option", hint="leave it out; a column may hold NULL unless NOT NULL"
            )
        elif hint := _UNSUPPORTED_COLUMN_OPTIONS.get(reader.keyword()):
            raise reader.unsupported(f"{reader.keyword()} is not offered for columns", hint=hint)
        else:
            raise reader.expected("','", "')'", *_open_options(not_null, is_key, comment))
    definition = ColumnDefinition(
        name=name.name,
        spelled=name.spelled,
        type_text=type_text,
        not_null=not_null or is_key,
        comment=comment,
        line=name.line,
        column=name.column,
    )
    return _Column(definition, is_key)


def _open_options(not_null: bool, is_key: bool, comment: str | None) -> list[str]:
    taken = (not_null, is_key, comment is not None)
    return [option for option, used in zip(_COLUMN_OPTIONS, taken, strict=True) if not used]


def _accept_column_key(reader: Reader) -> bool:
    if reader.at("CONSTRAINT"):
        reader.index += 1
        reader.column()
        if hint := _UNSUPPORTED_COLUMN_OPTIONS.get(reader.keyword()):
            raise reader.unsupported(f"{reader.keyword()} is not offered for columns", hint=hint)
        if not reader.at("PRIMARY"):
            raise reader.expected("PRIMARY KEY")
    if not reader.accept("PRIMARY"):
        return False
    reader.expect("KEY")
    _refuse_unenforced(reader)
    return True


def _at_table_constraint(reader: Reader) -> bool:
    named = 2 if reader.at("CONSTRAINT") and reader.keyword(2) in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN") else 0
    word, following = reader.keyword(named), reader.keyword(named + 1)
    if word in ("PRIMARY", "FOREIGN") and following == "KEY":
        return True
    return word in ("UNIQUE", "CHECK") and reader.at_symbol("(", named + 1)


def _read_table_constraint(reader: Reader) -> list[Name]:
    if reader.accept("CONSTRAINT"):
        reader.column()
    if not reader.at("PRIMARY"):
        raise reader.unsupported(
            f"{reader.keyword()} is not offered for tables", hint="only a PRIMARY KEY is kept; leave it out"
        )
    reader.expect("PRIMARY", "KEY")
    if not reader.at_symbol("("):
        raise reader.expected("'('")
    names = reader.columns()
    _refuse_unenforced(reader)
    return names


def _refuse_unenforced(reader: Reader) -> None:
    if reader.at("NOT", "ENFORCED") or reader.keyword() in ("ENFORCED", "RELY", "NORELY"):
        raise reader.unsupported("a primary key is always enforced", hint="leave the words after PRIMARY KEY out")


def _read_sequence(reader: Reader, columns: Sequence[ColumnDefinition], *, has_key: bool) -> str | None:
    line, column = reader.position()
    if not reader.accept("SEQUENCE"):
        if not reader.at_end and reader.keyword() not in _UNSUPPORTED_TABLE_OPTIONS:
            raise reader.expected("SEQUENCE BY", "the end of the statement")
        return None
    reader.expect("BY")
    name = reader.column()
    _known(name, columns, "sequence")
    if not has_key:
        raise StatementError(
            "SEQUENCE BY needs a primary key",
            hint="the sequence orders the changes of one key: add a PRIMARY KEY",
            line=line,
            column=column,
        )
    return name.name


def _refuse_table_option(reader: Reader) -> None:
    if hint := _UNSUPPORTED_TABLE_OPTIONS.get(reader.keyword()):
        raise reader.unsupported(f"{reader.keyword()} is not offered for tables", hint=hint)


def _known(name: Name, columns: Sequence[ColumnDefinition], what: str) -> None:
    if all(name.name != column.name for column in columns):
        listed = ", ".join(column.spelled for column in columns)
        raise _at(name, f"unknown column '{name.spelled}' in the {what}", f"the columns are {listed}")


def _at(named: Name | ColumnDefinition, message: str, hint: str) -> StatementError:
    return StatementError(message, hint=hint, line=named.line, column=named.column)
