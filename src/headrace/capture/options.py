"""What may be said about a format: each option with what it means, and the one it has if nobody says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from headrace.errors import SourceError

TimePrecision = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds", "structured"
]
TimeUnit = Literal["milliseconds", "microseconds", "nanoseconds"]
DecimalMode = Literal["precise", "string", "double"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
ExcessPrecision = Literal["refuse", "truncate"]
MissingColumns = Literal["null", "keep"]
UNAVAILABLE_VALUE = "__debezium_unavailable_value"


@dataclass(frozen=True)
class FormatOptions:
    """How records are written, where they do not say so themselves."""

    time_precision: TimePrecision = "adaptive"
    """`time.precision.mode` of the connector, for records of Debezium without their schema."""

    time_units: Mapping[str, TimeUnit] = field(default_factory=dict[str, TimeUnit])
    """What numbers count in columns of timestamps and times, for records without a schema: `a: milliseconds, ...`."""

    decimal_mode: DecimalMode = "precise"
    """`decimal.handling.mode` of the connector, for records of Debezium without their schema."""

    binary_mode: BinaryMode = "bytes"
    """`binary.handling.mode` of the connector: how text stands for bytes in a column of BINARY."""

    unavailable_value: str = UNAVAILABLE_VALUE
    """`unavailable.value.placeholder` of the connector; `hex:...` for bytes."""

    excess_precision: ExcessPrecision = "refuse"
    """Whether times with digits after the sixth are refused or cut off."""

    missing_columns: MissingColumns | None = None
    """What columns are that an update does not name: NULL (the default of dms), or what they were (of goldengate)."""

    document_column: str = ""
    """For MongoDB: a column that takes the whole document as JSON; the others take the fields that they name."""

    unknown_columns: Literal["pass", "ignore"] = "pass"
    """Whether columns that the table has not are passed on, to be refused or added, or left out."""

    before_image: str = "before-image"
    """For dms: `FieldName` of its before image."""


def read_options(given: Mapping[str, Any]) -> FormatOptions:
    """Options by name, as text or as they are; SourceError names the one that is unknown or cannot be so."""
    known = {one.name: one for one in fields(FormatOptions)}
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise SourceError(f"a format has no option {name}", hint=f"its options are {', '.join(known)}")
        choices = _CHOICES.get(name)
        if choices is not None and value not in choices:
            raise SourceError(f"{name} cannot be {value!r}", hint=f"it is one of {', '.join(choices)}")
        if name == "time_units":
            value = _read_units(value)
        elif not isinstance(value, str):
            raise SourceError(f"{name} cannot be {value!r}", hint="write it as text")
        elif name == "unavailable_value":
            _refuse_no_placeholder(value)
        read[name] = value
    return FormatOptions(**read)


def _refuse_no_placeholder(value: str) -> None:
    try:
        if value and (not value.startswith("hex:") or bytes.fromhex(value[4:])):
            return
    except ValueError:
        pass
    raise SourceError(f"unavailable_value cannot be {value!r}", hint="write text, or hex: and hexadecimal digits")


def _read_units(value: Any) -> Mapping[str, TimeUnit]:
    if isinstance(value, str):
        pairs = [part.partition(":") for part in value.split(",") if part.strip()]
        value = {name.strip(): unit.strip() for name, _, unit in pairs}
    units = get_args(TimeUnit)
    if not isinstance(value, Mapping) or not all(unit in units for unit in value.values()):  # pyright: ignore[reportUnknownVariableType]
        raise SourceError(
            f"time_units cannot be {value!r}", hint=f"write 'column: unit, ...', a unit being one of {', '.join(units)}"
        )
    return {str(name).lower(): unit for name, unit in value.items()}  # pyright: ignore[reportUnknownVariableType]


_CHOICES: dict[str, tuple[str, ...]] = {
    "time_precision": get_args(TimePrecision),
    "decimal_mode": get_args(DecimalMode),
    "binary_mode": get_args(BinaryMode),
    "excess_precision": get_args(ExcessPrecision),
    "missing_columns": get_args(MissingColumns),
    "unknown_columns": ("pass", "ignore"),
}
