"""What the data API knows of a relation: its columns, the key and the indexes by which rows can be asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql.types import DataType, StructType

from headrace.catalog.catalog import Catalog, Relation, Table
from headrace.errors import FeedError, RelationNameError, SetupError
from headrace.feeds.postgres_names import read_indexes
from headrace.intake.values import converter
from headrace.reading.access import Index, IndexColumn
from headrace.serving.data.tables import ServingTable, as_index, declared_by_feeds, serving_table
from headrace.serving.problems import Refusal
from headrace.settings import Settings
from headrace.types import ORDERED

# Of a relation without a key so many columns order its rows.
_MOST_COLUMNS = 8


@dataclass(frozen=True, eq=False)
class Shown:
    """A relation as the data API shows it."""

    name: str
    schema: StructType
    # What tells rows apart, if anything does, and whether Headrace itself sees to it.
    key: tuple[str, ...]
    keyed: bool
    indexes: tuple[Index, ...]
    # The names of the columns, by those in small letters.
    columns: Mapping[str, str]

    @cached_property
    def digest(self) -> bytes:
        """Another one for other columns."""
        told = f"{self.name}\0{self.schema.json()}\0{self.key}"
        return hashlib.blake2b(told.encode(), digest_size=16).digest()

    @cached_property
    def kinds(self) -> Mapping[str, DataType]:
        """The type of each column."""
        return {field.name: field.dataType for field in self.schema.fields}

    @cached_property
    def converters(self) -> Mapping[str, Callable[[Any], Any]]:
        """Of each column that can be compared, what makes a value of its JSON form."""
        return {name: converter(kind) for name, kind in self.kinds.items() if isinstance(kind, ORDERED)}

    def is_ordered(self, column: str) -> bool:
        """Whether values of a column can be compared."""
        return isinstance(self.kinds[column], ORDERED)


class ShownRelations:
    """The relations of a home that are shown, looked at anew when a definition changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = {name.lower(): text for name, text in settings.data_keys.items()}
        self._indexes = {name.lower(): text for name, text in settings.data_indexes.items()}
        self._catalog: Catalog | None = None
        self._known: dict[str, Shown] = {}
        self._tables: dict[str, ServingTable | None] = {}

    def names(self, catalog: Catalog) -> list[str]:
        """All that are shown, in order of their names."""
        return sorted(name for name, one in catalog.relations.items() if self._is_shown(one))

    def get(self, catalog: Catalog, name: str) -> Shown:
        """One of them; 404 if there is none."""
        self._look(catalog)
        found = self._known.get(name) or self._known.get(name.lower())
        if found is None:
            relation = catalog.get(name)
            if not self._is_shown(relation):
                raise RelationNameError(
                    f"{relation.name} is not shown here",
                    detail="Headrace keeps it for its own work.",
                    hint="ask with POST /v1/query, or set HEADRACE_DATA_SYSTEM_TABLES=true",
                )
            found = self._known[relation.name] = self._made(catalog, relation)
        return found

    def table(self, catalog: Catalog, name: str, database: str) -> ServingTable | None:
        """The table of PostgreSQL that equals a relation, if there is one."""
        self._look(catalog)
        if name not in self._tables:
            self._tables[name] = serving_table(catalog, name, database)
        return self._tables[name]

    def _look(self, catalog: Catalog) -> None:
        if self._catalog is not catalog:
            self._catalog, self._known, self._tables = catalog, {}, {}

    def _is_shown(self, relation: Relation) -> bool:
        return self._settings.data_system_tables or not (isinstance(relation, Table) and relation.system)

    def _made(self, catalog: Catalog, relation: Relation) -> Shown:
        schema = relation.schema
        columns = {name.lower(): name for name in schema.names}
        if len(columns) != len(schema.names):
            raise Refusal(
                400,
                "two_columns_of_one_name",
                f"{relation.name} has two columns of one name",
                hint="give one of them another name in a view, and ask for that",
            )
        key = relation.contract.key if isinstance(relation, Table) else relation.key
        fed_key, fed_indexes = declared_by_feeds(catalog, relation.name)
        declared = self._keys.get(relation.name, "")
        read = _read(relation.name, "data_keys", declared, columns)
        named = tuple(one.name for index in read for one in index) or fed_key
        indexes = _read(relation.name, "data_indexes", self._indexes.get(relation.name, ""), columns)
        indexes = tuple(dict.fromkeys((*indexes, *fed_indexes)))
        for one in {one.name for index in indexes for one in index} | set(named):
            if not isinstance(schema[one].dataType, ORDERED):
                raise _wrong(relation.name, "data_indexes", f"Values of {one} cannot be ordered.")
        if not key and not named:
            # Rows still need an order, so that pages can follow each other.
            ordered = [one.name for one in schema.fields if isinstance(one.dataType, ORDERED)]
            indexes = (*indexes, tuple(IndexColumn(name) for name in ordered[:_MOST_COLUMNS]))
        return Shown(relation.name, schema, tuple(key) or named, bool(key), tuple(indexes), columns)


def _read(relation: str, setting: str, text: str, columns: Mapping[str, str]) -> tuple[Index, ...]:
    """Indexes as a changefeed names them, 'user_id; user_id, at DESC'."""
    try:
        return tuple(as_index(one) for one in read_indexes(text, columns))
    except FeedError as error:
        raise _wrong(relation, setting, f"{error.message[0].upper()}{error.message[1:]}.") from None


def _wrong(relation: str, setting: str, detail: str) -> SetupError:
    return SetupError(
        f"{setting} of {relation} is not as it must be",
        detail=detail,
        hint="name columns with a , between them, each with ASC or DESC if need be, and a ; between indexes",
    )
