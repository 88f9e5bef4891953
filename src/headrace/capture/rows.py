"""Images of rows as their sources write them, read as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from pyspark.sql.types import DataType

from headrace.capture.messages import Row, Undecodable
from headrace.capture.moved_columns import column_for
from headrace.capture.options import FormatOptions
from headrace.capture.unknown_columns import UnknownColumns
from headrace.capture.values.encoding import PLAIN, Encoding, spark_type
from headrace.capture.values.reading import Reader, reader
from headrace.intake.reasons import BadValue, shown
from headrace.intake.table import TableContract

# How values of a type are written, and those of a column whose unit is named.
Assume = Callable[[DataType, str | None], Encoding]
# More columns than a table has room for would only be a way to fill the memory.
MOST_COLUMNS = 10_000


class Image(NamedTuple):
    """What a record has of a row, by the table's names where it has such columns, and which it only names."""

    row: Row
    unavailable: frozenset[str]
    # What the record has and the table has no column for.
    left_out: Row = MappingProxyType[str, Any]({})

    @property
    def whole(self) -> Row:
        """All that the record has of the row."""
        return {**self.row, **self.left_out} if self.left_out else self.row


class RowReader:
    """Reads images of rows that are all written alike.

    `described` says how the columns are written; what it does not name, and everything without it, is written as
    `assume` says for the type of the table's column. Without a table, each is read as what describes it says.
    """

    def __init__(
        self,
        table: TableContract | None,
        options: FormatOptions,
        assume: Assume,
        described: Mapping[str, Encoding] | None = None,
        is_unavailable: Callable[[Any], bool] | None = None,
        unknown: UnknownColumns | None = None,
    ) -> None:
        self._table = table
        self._options = options
        self._assume = assume
        self._described = described or {}
        self._is_unavailable = is_unavailable
        # Where it is noted what is left out.
        self._unknown = unknown
        self._types = {} if table is None else {one.name.lower(): (one.name, one.dataType) for one in table.schema}
        self._declared = {} if table is None else {name.lower(): name for name in table.schema.names}
        self._columns: dict[str, tuple[str, Reader] | None] = {}

    def read(self, image: Any, what: str) -> Image:
        """The row that an image shows, or `Undecodable`; `what` names the image where it is none."""
        if not isinstance(image, dict):
            raise Undecodable(f"{what} is no object by column name, but {shown(image)}")
        values: dict[str, Any] = {}
        lacking: list[str] = []
        left_out: dict[str, Any] = {}
        for given, value in cast("dict[Any, Any]", image).items():
            column = self._column(given)
            if column is None:
                left_out[str(given)] = self._left_out(given, value)
                continue
            name, read = column
            if name in values or name in lacking:
                raise Undecodable(f"{what} has two columns that are {name} in the table")
            if value is None:
                values[name] = None
            elif self._is_unavailable is not None and self._is_unavailable(value):
                lacking.append(name)
            else:
                try:
                    values[name] = read(value)
                except BadValue as bad:
                    raise Undecodable(bad.within(f"column {name}").reason, "values") from None
        return Image(values, frozenset(lacking), left_out)

    def _left_out(self, given: Any, value: Any) -> Any:
        """The value of a column that the table has not, as what describes it says; it is noted that it is left out."""
        encoding = self._described.get(given)
        if value is None or (self._is_unavailable is not None and self._is_unavailable(value)):
            return value
        if self._unknown is not None:
            self._unknown.note(str(given), value, described=encoding is not None)
        if encoding is None or encoding == PLAIN:
            return value
        try:
            return reader(encoding, spark_type(encoding), self._assumed)(value)
        except BadValue:
            return value

    def _column(self, given: Any) -> tuple[str, Reader] | None:
        """The name of a column in the table, and what reads it; None if it is to be left out."""
        try:
            return self._columns[given]
        except KeyError:
            column = self._find(given)
            # Names that nobody sends twice must not fill the memory.
            if len(self._columns) < MOST_COLUMNS:
                self._columns[given] = column
            return column

    def _find(self, given: Any) -> tuple[str, Reader] | None:
        name = self._declared.get(str(given).lower())
        encoding = self._described.get(given)
        truncate = self._options.excess_precision == "truncate"
        if name is not None and self._table is not None:
            if encoding is not None and encoding != PLAIN:
                name = column_for(name, spark_type(encoding), self._types)
            data_type = self._table.schema[name].dataType
            unit = self._options.time_units.get(name.lower())
            found = encoding or self._assume(data_type, unit)
            return name, reader(found, data_type, self._assumed, truncate=truncate)
        if self._options.unknown_columns == "ignore" and self._table is not None:
            return None
        natural = spark_type(encoding) if encoding is not None and encoding != PLAIN else None
        if encoding is None or natural is None:
            return str(given), _as_it_is
        return str(given), reader(encoding, natural, self._assumed, truncate=truncate)

    def _assumed(self, data_type: DataType) -> Encoding:
        return self._assume(data_type, None)


def _as_it_is(value: Any) -> Any:
    return value
