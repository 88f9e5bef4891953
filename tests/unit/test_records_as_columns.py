"""A backlog taken as columns is what its records are one by one: tables, tombstones, counts, raw rows, dead letters."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.capture.columns.debezium import ColumnDecoder
from headrace.capture.columns.records import Records
from headrace.capture.formats import FORMATS
from headrace.capture.options import FormatOptions
from headrace.catalog.catalog import Table
from headrace.catalog.make import make_table
from headrace.epoch.batch import Batch
from headrace.epoch.calls import Call
from headrace.epoch.work import Work
from headrace.intake.table import TableContract
from headrace.sources.bulk import Ways, call_of, prepare
from headrace.sources.intake import Progress, Torn, call_for, decode, without_records
from headrace.sources.positions import Positions
from headrace.sources.system_tables import DEAD_LETTERS, dead_letters_table, progress_table, raw_table
from tests.debezium_events import SOURCES
from tests.small_engine import catalog_of, rows

TYPES: dict[str, DataType] = {
    "id": LongType(),
    "small": ShortType(),
    "n": IntegerType(),
    "text": StringType(),
    "price": DecimalType(12, 2),
    "tiny": DecimalType(20, 10),
    "at": TimestampType(),
    "local": TimestampNTZType(),
    "day": DateType(),
    "clock": TimeType(6),
    "flag": BooleanType(),
    "ratio": DoubleType(),
    "part": FloatType(),
    "rate": DecimalType(9, 4),
    "bytes": BinaryType(),
    "seq": LongType(),
}
KINDS = ("keyed", "sequenced", "bag", "as they arrive")
START = datetime(2026, 1, 1, tzinfo=UTC)


def contract(kind: str, name: str = "things") -> TableContract:
    fields = [StructField(one, data_type, one not in ("id", "n")) for one, data_type in TYPES.items()]
    key = () if kind == "bag" else ("id", "text") if kind == "two" else ("id",)
    return TableContract(name, StructType(fields), key, "seq" if kind == "sequenced" else None)


class Home:
    """A table with what its source keeps beside it, in memory."""

    def __init__(self, kind: str, options: FormatOptions) -> None:
        self.table: Table = make_table(contract(kind))
        self.catalog = catalog_of(self.table, progress_table(), dead_letters_table(), raw_table("s"))
        self.now = START
        self.progress = Progress()
        self.bounced = 0
        columns = ColumnDecoder(self.table.contract, options)
        single = FORMATS["debezium"](self.table.contract, options)
        ordered = kind != "as they arrive"
        self.positions = Positions() if ordered else None
        self.ways = Ways(
            lambda _: "things",
            lambda _: self.table.contract,
            lambda _: columns,
            lambda arrivals: decode(
                arrivals, lambda _: "things", lambda _: single.decode, most_bytes=2000, positions=self.positions
            ),
            2000,
            self.positions,
        )

    def take_one_by_one(self, records: Records) -> None:
        decoded = self.ways.decode([records.arrival(index) for index in range(len(records))])
        while True:
            try:
                self._run(*call_for("s", decoded, self.progress, raw=True))
                return
            except Torn as torn:
                decoded = without_records(decoded, torn.letters)

    def take_as_columns(self, records: Records) -> None:
        prepared = prepare(records, self.ways)
        if prepared is None:
            self.bounced += 1
            self.take_one_by_one(records)
            return
        try:
            self._run(*call_of("s", prepared, self.progress, raw=True))
        except Torn:
            self.bounced += 1
            self.take_one_by_one(records)

    def _run(self, call: Call, reached: Any) -> None:
        now = self.now + timedelta(hours=1)
        stores = {store.name: store for store in self.catalog.stores()}
        batch = Batch(self.catalog, Work(stores, 1000), now, timedelta(hours=3))
        assert call.after is not None
        batch.take(call.after(batch.take(call.changes, each=True)))
        for name, delta in batch.deltas().items():
            stores[name].apply(delta)
        self.now = now
        self.progress = reached()
        assert self.progress.received == self.progress.applied + self.progress.stale + self.progress.dead

    def content(self) -> dict[str, Any]:
        """All that it holds, but for the times of arrival, which are those of the call."""
        found: dict[str, Any] = {}
        times = {"s_raw": "arrived_at", DEAD_LETTERS: "arrived_at", "source_progress": "updated_at"}
        for store in self.catalog.stores():
            relation = self.catalog.relations.get(store.name)
            names = list(range(len(store.schema))) if relation is None else relation.schema.names
            kept = [index for index, name in enumerate(names) if name != times.get(store.name)]
            held = rows(store.snapshot())  # pyright: ignore[reportArgumentType]
            found[store.name] = sorted((str([row[index] for index in kept]), count) for row, count in held.items())
        return found | {"progress": self.progress}


def base64_of(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


class Stream:
    """Records of a table as Debezium writes them, with all that may be among them."""

    def __init__(self, seed: int, kind: str, decimals: str, odd: float) -> None:
        self.random = random.Random(seed)
        self.kind, self.decimals, self.odd = kind, decimals, odd
        self.live: dict[int, dict[str, Any]] = {}
        self.at = 0
        self.lsn = 10_000

    def records(self, count: int) -> Records:
        pairs = [pair for _ in range(count) for pair in self.next()]
        begin, self.at = self.at, self.at + len(pairs)
        offsets = list(range(begin, self.at))
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        length = len(pairs)
        times, advance = [1700000000123] * length, {"shop.things:0": self.at}
        return Records(values, keys, ["shop.things"] * length, [0] * length, offsets, times, advance)

    def next(self) -> list[tuple[bytes | None, bytes | None]]:
        choose = self.random
        number = choose.randint(1, 12)
        known = self.live.get(number)
        before: dict[str, Any] | None = None
        after: dict[str, Any] | None = None
        if known is None or choose.random() < 0.2:
            op, after = choose.choice("cr"), self.row(number)
        elif choose.random() < 0.6:
            op, after = "u", self.row(number)
            if self.kind == "bag" or choose.random() < 0.4:
                before = dict(known)
                if choose.random() < 0.1:
                    # Another key after it than before it.
                    after["id"] = number + 20
        else:
            op, before = "d", dict(known)
            if self.kind != "bag" and choose.random() < 0.5:
                before = {name: value if name in ("id", "seq", "text") else None for name, value in known.items()}
        if after is None:
            self.live.pop(number, None)
        else:
            self.live[after["id"] if type(after["id"]) is int else number] = dict(after)
        key = self.bytes({"id": number})
        listed: list[tuple[bytes | None, bytes | None]] = [(key, self.bytes(self.envelope(op, before, after)))]
        if op == "d" and choose.random() < 0.7:
            listed.append((key, None))
        return listed

    def envelope(self, op: str, before: Any, after: Any) -> Any:
        choose = self.random
        source: dict[str, Any] = dict(SOURCES["postgresql"])
        # Mostly in order, as logs are; some are sent again, or late.
        steps: list[int] = [1, 1, 7, 1000, *([-500, 0] if self.odd else [])]
        self.lsn += choose.choice(steps)
        lsn = self.lsn
        source |= {"lsn": lsn, "sequence": choose.choice([f'["{lsn - 1}","{lsn}"]', f'[null,"{lsn}"]', None])}
        source["ts_ns"] = choose.choice([1700000000123456789 + lsn, None])
        envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 5}
        if choose.random() >= self.odd:
            return envelope
        image = after or before or {}
        return choose.choice(
            [
                lambda: {**envelope, "op": "x"},
                lambda: {**envelope, "after": None},
                lambda: {**envelope, "before": None},
                lambda: {name: value for name, value in envelope.items() if name != "source"},
                lambda: {**envelope, "after": {**image, "more": 1}},
                lambda: {**envelope, "after": {**image, "text": "__debezium_unavailable_value"}},
                lambda: {**envelope, "after": {**image, "price": "__debezium_unavailable_value"}},
                lambda: {**envelope, "after": dict(reversed(list(image.items())))},
                lambda: {**envelope, "after": {name: image[name] for name in list(image)[:-3]}},
                lambda: {**envelope, "after": {**image, "n": None}},
                lambda: {**envelope, "after": {**image, "id": str(image["id"])}},
                lambda: {**envelope, "source": {**source, "ts_ns": 10**30}},
                lambda: {**envelope, "source": {**source, "connector": "mysql", "file": "a.1", "pos": 4}},
                lambda: {**envelope, "source": {**source, "ts_ns": None, "ts_us": 1700000000123456 + lsn % 7}},
                lambda: {**envelope, "source": {**source, "snapshot": choose.choice(["true", "last", "", None, True])}},
                lambda: {**envelope, "source": {**source, "table": "others"}},
                lambda: {**envelope, "source": {**source, "lsn": None, "sequence": None}},
                lambda: {**envelope, "after": {**(image or {}), "text": "x" * 3000}},
                lambda: {},
                lambda: {"ts_ms": 1},
                lambda: b"{no json",
                lambda: b"\xff\xfe",
                lambda: b"",
                lambda: json.dumps(envelope).encode().replace(b'"op"', b'"op": "c", "op"'),
                lambda: json.dumps(envelope).encode().replace(b'"ts_ms": 5', b'"ts_ms": NaN'),
                lambda: json.dumps(envelope).encode() + b" {}",
                lambda: b"\xef\xbb\xbf" + json.dumps(envelope).encode(),
                lambda: {"schema": None, "payload": envelope},
            ]
        )()

    def row(self, number: int) -> dict[str, Any]:
        choose = self.random
        odd = choose.random() < self.odd
        cents = choose.choice([0, 5, -5, 100, -123456, 999_999_999_999, choose.randint(-(10**9), 10**9)])
        tiny = choose.choice([0, 1, -1, 7, 10**19, choose.randint(-(10**12), 10**12)])
        if self.decimals == "precise":
            price: Any = base64_of(cents * 1000 if odd and choose.random() < 0.5 else cents)
            small: Any = base64_of(tiny)
        else:
            price, small = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}", f"{tiny % 1000}.5"
            if odd:
                price = choose.choice(["1.500", "007.5", "+1", "1e2", "x", "", "123456789012345.1", 7, "NaN"])
        micros = choose.choice([0, 1, -1, 1_768_000_000_000_000, 1_768_000_000_123_456, -62_135_596_800_000_000])
        moment = START + timedelta(microseconds=choose.randint(0, 10**14))
        text = choose.choice(["", "a", 'q"q', "b\\s", "ü€😀", "line\nbreak", "\u0000\u001f\u007f", '"id":1,', "null"])
        return {
            "id": number,
            "small": choose.choice([0, -32768, 32767, *([32768] if odd else [])]),
            "n": choose.choice([0, -0, 2147483647, -2147483648, *([2147483648, 10**18, 10**25, 1.5] if odd else [])]),
            "text": choose.choice([None, text, text]),
            "price": choose.choice([None, price, price]),
            "tiny": choose.choice([None, small, small]),
            "at": choose.choice(
                [
                    None,
                    moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                    moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    *(
                        [
                            "2026-02-30T00:00:00Z",
                            "2026-01-01T00:00:00+02:00",
                            "infinity",
                            5,
                            "2026-01-01T00:00:00.1234567Z",
                        ]
                        if odd
                        else []
                    ),
                ]
            ),
            "local": choose.choice([None, micros, *([9223372036825200, 10**18, "2026-01-01T00:00:00"] if odd else [])]),
            "day": choose.choice(
                [None, 0, -1, 20000, (date(9999, 12, 31) - date(1970, 1, 1)).days, *([10**9] if odd else [])]
            ),
            "clock": choose.choice([None, 0, 86_399_999_999, *([86_400_000_000, -1] if odd else [])]),
            "flag": choose.choice([None, True, False, *([0, 1, "true", 2] if odd else [])]),
            "ratio": choose.choice(
                [None, 0.5, -0.0, 1.5e10, 1e-7, 12345678.125, 3, -7, *(["NaN", 10**20] if odd else [])]
            ),
            "part": choose.choice([None, 0.5, 0.1, -2.25, 3, *([1e39, 2**31 + 1, "x"] if odd else [])]),
            "rate": choose.choice([None, 1.5, -0.25, 12345.6789, 3, 0, *([1e-5, 123456.0, "AQ=="] if odd else [])]),
            "bytes": choose.choice([None, "", "AAH/", "AB==", *(["%%", 5] if odd else [])]),
            "seq": choose.choice([1, 2, 3, 4, 5, 5, *([None] if odd else [])]),
        }

    def bytes(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        compact = (",", ":") if self.random.random() < 0.9 else (", ", ": ")
        return json.dumps(value, separators=compact, ensure_ascii=self.random.random() < 0.2).encode()


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(KINDS),
    decimals=st.sampled_from(["precise", "string"]),
    odd=st.sampled_from([0.0, 0.05, 0.4]),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
)
def test_both_ways_give_the_same(seed: int, kind: str, decimals: str, odd: float, sizes: list[int]) -> None:
    options = FormatOptions(decimal_mode=decimals)  # pyright: ignore[reportArgumentType]
    stream = Stream(seed, kind, decimals, odd)
    single, whole = Home(kind, options), Home(kind, options)
    for size in sizes:
        records = stream.records(size)
        single.take_one_by_one(records)
        whole.take_as_columns(records)
        assert whole.content() == single.content()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decimals", ["precise", "string"])
def test_usual_records_are_all_understood(kind: str, decimals: str) -> None:
    stream = Stream(7, kind, decimals, 0.0)
    records = stream.records(400)
    decoder = ColumnDecoder(contract(kind), FormatOptions(decimal_mode=decimals))  # pyright: ignore[reportArgumentType]
    columns = decoder.decode(pa.array(records.values, pa.large_binary()), pa.array(records.keys, pa.large_binary()))
    # Escapes of pairs, and rows that change their key, are read alone.
    assert np.count_nonzero(columns.understood) > 0.9 * len(records)
