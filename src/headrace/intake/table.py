"""What a table asks of its changes, and how a change becomes an exact row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, cast

from pyspark.sql.types import StructField, StructType

from headrace.errors import StatementError
from headrace.intake.identity import Identity, Row, rank_of, row_identity_of
from headrace.intake.reasons import BadValue, plain, shown
from headrace.intake.values import column_converter, converter, names_by_lower

NO_CHANGE = 'a change is {"insert": row}, {"update": part of a row} or {"delete": row}'
SHOWN_COLUMNS = 20
# Of more refused changes than this, the rest is not looked at: each costs its reason, and nothing is applied.
MOST_REASONS = 10_000


class Decoded(NamedTuple):
    """One change with exact values; the row of a delete by key is None.

    At the indexes that are `kept`, where its row has None, an update leaves the values of the row that is there.
    """

    delete: bool
    row: Row | None
    key: Row
    identity: Identity
    sequence: Any
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class TableContract:
    """A table's columns, its key, and the column that orders the changes of a key."""

    name: str
    schema: StructType
    key: tuple[str, ...] = ()
    sequence: str | None = None

    def __post_init__(self) -> None:
        declared = names_by_lower(self.schema.names)
        if len(declared) != len(self.schema.names):
            raise StatementError(f"table {self.name} has two columns of one name")
        named = (*self.key, *([self.sequence] if self.sequence is not None else []))
        for name in named:
            if name.lower() not in declared:
                raise StatementError(f"table {self.name} has no column {name}")
        if self.sequence is not None:
            if not self.key:
                raise StatementError(
                    f"table {self.name} has SEQUENCE BY without a key",
                    hint="declare a PRIMARY KEY, whose changes the sequence orders",
                )
            object.__setattr__(self, "sequence", declared[self.sequence.lower()])
        object.__setattr__(self, "key", tuple(declared[name.lower()] for name in self.key))
        if len(set(self.key)) != len(self.key):
            raise StatementError(f"the key of table {self.name} names a column twice")
        # What no change could ever satisfy is told now, not at the first change.
        _ = self._decoder, self.sequence_rank

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        """The indexes of the key's columns, in the order of the key."""
        return tuple(self.schema.names.index(name) for name in self.key)

    @cached_property
    def key_identity(self) -> Callable[[Row], Identity]:
        """From the key's values, in the order of the key, to the identity of the key."""
        return row_identity_of(self.schema[name].dataType for name in self.key)

    @cached_property
    def row_identity(self) -> Callable[[Row], Identity]:
        """From a whole row to its identity."""
        return row_identity_of(field.dataType for field in self.schema.fields)

    @cached_property
    def sequence_rank(self) -> Callable[[Any], Any] | None:
        """From a sequence to a form that compares as Spark sorts it; None without SEQUENCE BY."""
        return None if self.sequence is None else rank_of(self.schema[self.sequence].dataType)

    @cached_property
    def _decoder(self) -> _Decoder:
        return _Decoder(self)

    def decode(self, change: object) -> Decoded:
        """The change with exact values, or `BadValue` with every reason against it."""
        return self._decoder.decode(change)

    def decode_all(
        self, changes: Sequence[object], most: int | None = None
    ) -> tuple[list[Decoded | None], dict[int, str]]:
        """The changes in order, None where one is refused, and the reasons by position, so many at most."""
        return self._decoder.decode_all(changes, MOST_REASONS if most is None else most)


class _Columns:
    """The columns that one kind of change carries, and how raw values become exact ones."""

    def __init__(self, contract: TableContract, names: Sequence[str]) -> None:
        fields = [contract.schema[name] for name in names]
        null_reasons = [_null_reason(contract, field) for field in fields]
        self._names = list(names)
        self._width = len(contract.schema.names)
        self._fields = [
            (field.name, converter(field.dataType), why) for field, why in zip(fields, null_reasons, strict=True)
        ]
        self._columns = [
            column_converter(field.dataType, nullable=why is None)
            for field, why in zip(fields, null_reasons, strict=True)
        ]
        self._pick = _tuple_getter(self._names)

    def raw(self, row: dict[str, Any]) -> Row:
        """The values by position, None where the row has none."""
        return self._pick(row) if len(row) == self._width else tuple(map(row.get, self._names))

    def exact_rows(self, rows: Sequence[Row]) -> list[Row]:
        """All rows exact, column by column; `BadValue` if any value of any row is refused."""
        columns = zip(zip(*rows, strict=True), self._columns, strict=True)
        return list(zip(*[convert(values) for values, convert in columns], strict=True))

    def exact_row(self, row: dict[str, Any]) -> Row:
        """One row by declared names, exact; `BadValue` with every reason against it."""
        return self.exact_part(row)[0]

    def exact_part(self, row: dict[str, Any], may_lack: Collection[str] = ()) -> tuple[Row, tuple[int, ...]]:
        """The same of a row that may lack some columns, which are None; and their indexes."""
        exact: list[object] = []
        lacking: list[int] = []
        reasons: list[str] = []
        for name, convert, null_reason in self._fields:
            if name in may_lack and name not in row:
                lacking.append(len(exact))
                exact.append(None)
                continue
            value = plain(row.get(name))
            if value is not None:
                try:
                    exact.append(convert(value))
                except BadValue as bad:
                    reasons.append(bad.within(f"column {name}").reason)
            elif null_reason is None:
                exact.append(None)
            else:
                reasons.append(f"column {name} is {'NULL' if name in row else 'missing'}, but {null_reason}")
        if reasons:
            raise BadValue("; ".join(reasons))
        return tuple(exact), tuple(lacking)


class _Decoder:
    """A table's contract, prepared for many changes."""

    def __init__(self, contract: TableContract) -> None:
        names = contract.schema.names
        self._names = names
        self._declared = names_by_lower(names)
        self._known = frozenset(names)
        self._insert = _Columns(contract, names)
        carried = names
        if contract.key:
            carried = list(contract.key)
            if contract.sequence is not None and contract.sequence not in carried:
                carried.append(contract.sequence)
        self._delete = _Columns(contract, carried) if contract.key else self._insert
        # What an update need not name; without a key there is no row to take it from.
        self._may_lack = frozenset(names).difference(carried)
        self._finish_insert = _finisher(contract, names, delete=False)
        self._finish_delete = _finisher(contract, carried, delete=True)

    def decode(self, change: object) -> Decoded:
        kind, row = self._open(change)
        if kind == "delete":
            return self._finish_delete([self._delete.exact_row(row)])[0]
        if kind == "update":
            exact, kept = self._insert.exact_part(row, self._may_lack)
            return self._finish_insert([exact])[0]._replace(kept=kept)
        return self._finish_insert([self._insert.exact_row(row)])[0]

    def decode_all(self, changes: Sequence[object], most: int) -> tuple[list[Decoded | None], dict[int, str]]:
        decoded: list[Decoded | None] = [None] * len(changes)
        reasons: dict[int, str] = {}
        inserts: list[int] = []
        insert_rows: list[Row] = []
        deletes: list[int] = []
        delete_rows: list[Row] = []
        for index, change in enumerate(changes):
            try:
                kind, row = self._open(change)
                if kind == "update":
                    decoded[index] = self.decode(change)
            except BadValue as bad:
                reasons[index] = bad.reason
                if len(reasons) >= most:
                    break
                continue
            if kind == "update":
                continue
            if kind == "delete":
                deletes.append(index)
                delete_rows.append(self._delete.raw(row))
            else:
                inserts.append(index)
                insert_rows.append(self._insert.raw(row))
        for columns, finish, indexes, rows in (
            (self._insert, self._finish_insert, inserts, insert_rows),
            (self._delete, self._finish_delete, deletes, delete_rows),
        ):
            if not rows:
                continue
            try:
                done = finish(columns.exact_rows(rows))
            except BadValue:
                # Some row of many is bad: each is looked at alone, to tell which and why.
                for index in indexes:
                    try:
                        decoded[index] = self.decode(changes[index])
                    except BadValue as bad:
                        reasons[index] = bad.reason
                        if len(reasons) >= most:
                            break
                continue
            for index, change in zip(indexes, done, strict=True):
                decoded[index] = change
        return decoded, reasons

    def _open(self, change: Any) -> tuple[str, dict[str, Any]]:
        """What kind of change it is, and its row by declared column names."""
        if isinstance(change, dict) and len(change) == 1:
            ((kind, row),) = change.items()
            if kind == "insert" or kind == "delete" or kind == "update":
                if type(row) is dict and self._known.issuperset(row):
                    return kind, row
                return kind, self._by_declared_name(row)
        raise BadValue(NO_CHANGE)

    def _by_declared_name(self, row: Any) -> dict[str, Any]:
        if hasattr(row, "asDict"):
            row = row.asDict()
        if not isinstance(row, Mapping):
            raise BadValue(f"a row is an object by column name, got {shown(row)}")
        given: dict[str, Any] = {}
        for name, value in cast("Mapping[Any, Any]", row).items():
            exact = self._declared.get(name.lower()) if isinstance(name, str) else None
            if exact is None:
                columns = ", ".join(self._names[:SHOWN_COLUMNS])
                more = ", ..." if len(self._names) > SHOWN_COLUMNS else ""
                raise BadValue(f"unknown column {shown(name)}; the columns are {columns}{more}")
            if exact in given:
                raise BadValue(f"column {exact} is given twice")
            given[exact] = value
        return given


def _null_reason(contract: TableContract, field: StructField) -> str | None:
    """Why the column takes no NULL; None if it takes one."""
    if field.name == contract.sequence:
        return "the table's SEQUENCE BY needs it"
    if field.name in contract.key:
        return "it is part of the key"
    return None if field.nullable else "it is NOT NULL"


def _finisher(
    contract: TableContract, carried: Sequence[str], *, delete: bool
) -> Callable[[Sequence[Row]], list[Decoded]]:
    """From exact rows of the carried columns to decoded changes."""
    pick_key = _tuple_getter([carried.index(name) for name in contract.key])
    find_identity = contract.key_identity if contract.key else contract.row_identity
    sequence = None if contract.sequence is None else itemgetter(carried.index(contract.sequence))

    def finish(rows: Sequence[Row]) -> list[Decoded]:
        keys = list(map(pick_key, rows)) if contract.key else repeat(())
        marks = map(find_identity, keys if contract.key else rows)
        kept = repeat(None) if delete and contract.key else rows
        sequences = repeat(None) if sequence is None else map(sequence, rows)
        # The same as Decoded(*parts), without a Python frame for each row.
        parts = zip(repeat(delete), kept, keys, marks, sequences, repeat(()))
        return list(map(tuple.__new__, repeat(Decoded), parts))

    return finish


def _tuple_getter(indexes: Sequence[Any]) -> Callable[[Any], Row]:
    """Picks the values at the indexes, always as a tuple."""
    if not indexes:
        return lambda _: ()
    if len(indexes) == 1:
        (index,) = indexes
        return lambda row: (row[index],)
    return itemgetter(*indexes)
