"""Columns as a source describes them, in the types of Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import DataType


@dataclass(frozen=True)
class DescribedColumn:
    """One column: its name, the type that takes its values, and whether it takes NULL."""

    name: str
    data_type: DataType
    nullable: bool = True


@dataclass(frozen=True)
class DescribedTable:
    """A table as its source has it after a change, `came` and `went` told apart; its key where the source names one.

    A renamed table tells its former name.
    """

    name: str
    columns: tuple[DescribedColumn, ...] = ()
    key: tuple[str, ...] = ()
    what: Literal["came", "changed", "went"] = "changed"
    former_name: str = ""
