"""TPC-H's 22 queries as views over a tiny, changing data set: `python -m tests.judge.tpch`.

Every table changes in every epoch: rows come, go, get other values, and now and then a table is emptied. After each,
every view is compared with plain Spark's answer over a model of the tables; a view that never had a row is named.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DateType, DecimalType, IntegerType, StringType

import headrace
from headrace.settings import Settings
from headrace.spark.session import start_spark
from tests.judge.model import Changes, Model, delete, insert
from tests.judge.oracle import Oracle, answer_of, same
from tests.judge.schemas import Column, Table

T = TypeVar("T")
EPOCHS = 20
NULLS = 0.04
REGIONS = ("AMERICA", "EUROPE", "ASIA", "MIDDLE EAST")
NATIONS = ("BRAZIL", "CANADA", "FRANCE", "GERMANY", "CHINA", "INDIA", "SAUDI ARABIA")
REGION_OF = (0, 0, 1, 1, 2, 2, 3)
DAYS = tuple(
    date.fromisoformat(text)
    for text in (
        *("1993-07-20", "1993-08-01", "1993-11-15", "1994-03-10", "1994-08-20", "1995-03-01", "1995-03-20"),
        *("1995-09-10", "1995-09-21", "1996-02-05", "1996-03-11", "1998-08-30"),
    )
)
# How many rows each table begins with; keys are drawn from about as many.
SIZES = {
    "region": 4,
    "nation": 7,
    "supplier": 8,
    "part": 16,
    "partsupp": 40,
    "customer": 16,
    "orders": 50,
    "lineitem": 180,
}


def _one_of(values: Sequence[T]) -> Callable[[Random], T]:
    return lambda rng: rng.choice(values)


def _words(name: str, *values: str) -> Column:
    return Column(name, "STRING", StringType(), _one_of(values))


def _number(name: str, below: int) -> Column:
    return Column(name, "INT", IntegerType(), lambda rng: rng.randrange(below))


def _amount(name: str, *values: str) -> Column:
    kind: DataType = DecimalType(12, 2)
    return Column(name, "DECIMAL(12,2)", kind, _one_of([Decimal(value) for value in values]))


def _day(name: str) -> Column:
    return Column(name, "DATE", DateType(), _one_of(DAYS))


_PRICES = ("901.00", "1500.50", "12000.25", "33.10", "740.99", "26000.00")
_BALANCES = ("-120.50", "0.00", "711.56", "4500.00", "9800.10")
_PHONES = ("13-750-942-6364", "31-989-741-2988", "23-768-687-3665", "10-100-106-1617", "29-190-982-9759")
_TABLES = (
    Table(
        "region", (_number("r_regionkey", 4), _words("r_name", *REGIONS), _words("r_comment", "far")), ("r_regionkey",)
    ),
    Table(
        "nation",
        (_number("n_nationkey", 7), _words("n_name", *NATIONS), _number("n_regionkey", 4), _words("n_comment", "near")),
        ("n_nationkey",),
    ),
    Table(
        "supplier",
        (
            _number("s_suppkey", 8),
            _words("s_name", "Supplier#1", "Supplier#2", "Supplier#3", "Supplier#4"),
            _words("s_address", "north", "south"),
            _number("s_nationkey", 7),
            _words("s_phone", *_PHONES),
            _amount("s_acctbal", *_BALANCES),
            _words("s_comment", "quick", "Customer did file Complaints", "Customer praise"),
        ),
        ("s_suppkey",),
    ),
    Table(
        "part",
        (
            _number("p_partkey", 16),
            _words("p_name", "forest green", "almond green", "forest pink", "royal blue"),
            _words("p_mfgr", "Manufacturer#1", "Manufacturer#2"),
            _words("p_brand", "Brand#12", "Brand#23", "Brand#34", "Brand#45"),
            _words(
                "p_type", "PROMO PLATED BRASS", "ECONOMY ANODIZED STEEL", "MEDIUM POLISHED BRASS", "SMALL BRUSHED TIN"
            ),
            Column("p_size", "INT", IntegerType(), _one_of((3, 9, 15, 49))),
            _words("p_container", "SM CASE", "SM BOX", "MED BOX", "MED BAG", "LG CASE", "LG BOX"),
            _amount("p_retailprice", *_PRICES),
            _words("p_comment", "shiny"),
        ),
        ("p_partkey",),
    ),
    Table(
        "partsupp",
        (
            _number("ps_partkey", 16),
            _number("ps_suppkey", 8),
            Column("ps_availqty", "INT", IntegerType(), _one_of((1, 20, 300, 4000))),
            _amount("ps_supplycost", "1.00", "57.30", "57.30", "993.49"),
            _words("ps_comment", "stock"),
        ),
        ("ps_partkey", "ps_suppkey"),
    ),
    Table(
        "customer",
        (
            _number("c_custkey", 20),
            _words("c_name", "Customer#1", "Customer#2", "Customer#3"),
            _words("c_address", "east", "west"),
            _number("c_nationkey", 7),
            _words("c_phone", *_PHONES),
            _amount("c_acctbal", *_BALANCES),
            _words("c_mktsegment", "BUILDING", "MACHINERY"),
            _words("c_comment", "kind"),
        ),
        ("c_custkey",),
    ),
    Table(
        "orders",
        (
            _number("o_orderkey", 60),
            _number("o_custkey", 12),
            _words("o_orderstatus", "F", "O", "P"),
            _amount("o_totalprice", *_PRICES),
            _day("o_orderdate"),
            _words("o_orderpriority", "1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"),
            _words("o_clerk", "Clerk#1", "Clerk#2"),
            Column("o_shippriority", "INT", IntegerType(), _one_of((0, 1))),
            _words("o_comment", "some special early requests", "plain", "special"),
        ),
        ("o_orderkey",),
    ),
    Table(
        "lineitem",
        (
            _number("l_orderkey", 60),
            _number("l_partkey", 16),
            _number("l_suppkey", 8),
            _number("l_linenumber", 5),
            _amount("l_quantity", "1.00", "7.00", "15.00", "24.00", "30.00", "49.00"),
            _amount("l_extendedprice", *_PRICES),
            _amount("l_discount", "0.00", "0.05", "0.06", "0.07", "0.10"),
            _amount("l_tax", "0.00", "0.04", "0.08"),
            _words("l_returnflag", "R", "A", "N"),
            _words("l_linestatus", "O", "F"),
            _day("l_shipdate"),
            _day("l_commitdate"),
            _day("l_receiptdate"),
            _words("l_shipinstruct", "DELIVER IN PERSON", "NONE"),
            _words("l_shipmode", "AIR", "AIR REG", "MAIL", "SHIP"),
            _words("l_comment", "neat"),
        ),
        ("l_orderkey", "l_linenumber"),
    ),
)
TABLES = {table.name: table for table in _TABLES}


def queries() -> dict[str, str]:
    """The queries by their name."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- (Q\d\d)\n", text, flags=re.MULTILINE)[1:]
    return {name.lower(): sql.strip().removesuffix(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def first_rows(rng: Random) -> Changes:
    """What the tables begin with: regions and nations as they are, all else at random."""
    regions = [{"r_regionkey": key, "r_name": name, "r_comment": ""} for key, name in enumerate(REGIONS)]
    nations = [
        {"n_nationkey": key, "n_name": name, "n_regionkey": REGION_OF[key], "n_comment": ""}
        for key, name in enumerate(NATIONS)
    ]
    drawn = {name: [TABLES[name].random_row(rng, NULLS) for _ in range(SIZES[name])] for name in list(SIZES)[2:]}
    return {
        name: [insert(row) for row in rows] for name, rows in {"region": regions, "nation": nations, **drawn}.items()
    }


def draw_changes(rng: Random, model: Model) -> Changes:
    """Some rows of some tables come, go or change; now and then a table loses everything, and gets it back later."""
    if rng.random() < 0.1:
        return model.clear([rng.choice(list(TABLES))])
    changes: Changes = {}
    for name, table in TABLES.items():
        rows = model[name].rows()
        missing = max(SIZES[name] - len(rows), 0)
        few = name in ("region", "nation")
        count = 0 if few and rng.random() < 0.8 else rng.randint(0, 1 if few else 4 + SIZES[name] // 20)
        made = [insert(table.random_row(rng, NULLS)) for _ in range(count + missing // 2)]
        gone = [delete(row) for row in rng.sample(rows, min(len(rows), rng.randint(0, count)))]
        changes[name] = [*gone, *made]
    if not model["region"].rows() or not model["nation"].rows():
        first = first_rows(rng)
        changes |= {"region": first["region"], "nation": first["nation"]}
    return {name: rows for name, rows in changes.items() if rows}


def run(spark: SparkSession, home: Path, seed: int, epochs: int, tell: Callable[[str], Any] = print) -> list[str]:
    """What was found wrong; nothing if every view was right after every epoch."""
    rng = Random(seed)
    views = queries()
    model, oracle = Model(TABLES.values()), Oracle(spark)
    most: Counter[str] = Counter()
    faults: list[str] = []
    with headrace.open(str(home), spark=spark) as hr:
        for table in TABLES.values():
            hr.execute(table.create_sql())
        for name, sql in views.items():
            hr.execute(f"CREATE VIEW {name} AS {sql}")
        for number in range(epochs):
            changes = draw_changes(rng, model) if number else first_rows(rng)
            started = time.perf_counter()
            hr.apply(changes)
            taken = time.perf_counter() - started
            model.apply(changes)
            oracle.load(model)
            for name, sql in views.items():
                expected = oracle.run(sql)
                most[name] = max(most[name], sum(any(v is not None for v in row) for row in expected.rows.elements()))
                difference = same(expected, answer_of(hr.query(f"SELECT * FROM {name}")))
                if difference:
                    faults.append(f"seed {seed}, epoch {number}, {name}: {difference}")
            count = sum(map(len, changes.values()))
            tell(f"epoch {number}: {count} changes in {taken:.2f} s, {len(views)} views compared, {len(faults)} wrong")
        verdict = hr.verify()
        faults.extend(f"seed {seed}, verify: {one}" for one in verdict.differences)
        full = [name for name in views if not hr.explain(name).incremental]
        tell(f"{len(views) - len(full)} of {len(views)} views are incremental" + (f", not {full}" if full else ""))
    empty = [name for name in views if not most[name]]
    tell(f"without a row at any time: {', '.join(empty)}" if empty else "every view had rows")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 if a view was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.tpch", description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else int(time.time())
    spark = start_spark(Settings())
    with tempfile.TemporaryDirectory(prefix="headrace-tpch-") as folder:
        faults = run(spark, Path(folder) / "home", seed, options.epochs)
    spark.stop()
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults, seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
