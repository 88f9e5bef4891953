"""Rows of constants without a job: the same rows as Spark's own query gives, and the same refusals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from headrace import HeadraceError
from headrace.face import home_of
from headrace.plans.literals import Literals
from headrace.state.arrow_types import conform
from tests.thinned import thinned

TYPES = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(5,2)",
    "DECIMAL(38,18)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "INTERVAL DAY TO SECOND",
    "ARRAY<INT>",
    "ARRAY<STRING>",
    "MAP<STRING, INT>",
    "STRUCT<a: INT, b: STRING>",
    "STRUCT<a: INT NOT NULL, b: ARRAY<DATE>>",
]

CONSTANTS = [
    "NULL",
    "TRUE",
    "0",
    "-0",
    "127",
    "-129",
    "2147483648",
    "9223372036854775808",
    "-9223372036854775808",
    "1.005",
    "999.995",
    "-0.0D",
    "1e400",
    "'NaN'",
    "'inf'",
    "''",
    "' 12 '",
    "'1e2'",
    "'true'",
    "'ä\\u0000\\n\\'x'",
    "r'\\n'",
    "'a' 'b'",
    "X'00FF'",
    "X''",
    "7Y",
    "300S",
    "1.5F",
    "2.25BD",
    "DATE '0001-01-01'",
    "DATE '9999-12-31'",
    "'2024-02-30'",
    "'2024-02-29'",
    "TIMESTAMP '2024-03-31 02:30:00.123456 Europe/Berlin'",
    "TIMESTAMP '2024-03-31 02:30:00'",
    "TIMESTAMP_NTZ '1582-10-10 00:00:00'",
    "'2024-01-01T00:00:00+14:00'",
    "INTERVAL '1 02:03:04.5' DAY TO SECOND",
    "INTERVAL '1-2' YEAR TO MONTH",
    "CAST('12' AS INT)",
    "CAST(300 AS TINYINT)",
    "TRY_CAST('x' AS INT)",
    "'5'::INT",
    "-(5)",
    "+(-5)",
    "1 + 2",
    "array()",
    "array(1, NULL, -3)",
    "array('1', 'x')",
    "array(1, 'x')",
    "map()",
    "map('a', 1, 'b', NULL)",
    "map('a', 1, 'a', 2)",
    "named_struct('a', 1, 'b', 'x')",
    "named_struct('x', 1, 'y', array('2024-01-01'))",
    "struct(1, 'x')",
    "struct(1 AS b, 'x' AS a)",
    "(1, 'x')",
    "named_struct('a', NULL, 'b', NULL)",
]

MORE_THAN_CONSTANTS = [
    "VALUES (current_timestamp())",
    "VALUES (rand())",
    "VALUES (upper('x'))",
    "VALUES ((SELECT 1))",
    "VALUES (array(upper('x')))",
    "VALUES (DEFAULT)",
    "VALUES (x)",
    "VALUES (1), (1, 2)",
    "VALUES (1, 2)",
    "VALUES (1",
    "SELECT 1",
    "VALUES (1) UNION ALL VALUES (2)",
]


@pytest.fixture(scope="module")
def catalyst(spark: Any) -> Any:
    from headrace.plans.catalyst import Catalyst
    from headrace.spark.session import large_session

    return Catalyst(large_session(spark))


def types_of(catalyst: Any, names: list[str]) -> list[DataType]:
    schema: StructType = catalyst.session.sql(f"SELECT {', '.join(f'CAST(NULL AS {name})' for name in names)}").schema
    return [field.dataType for field in schema.fields]


def queried(catalyst: Any, sql: str, types: list[DataType]) -> Any:
    """The rows by way of a query, before any of them is asked for."""
    frame = catalyst.frame(catalyst.parse_query(sql)).toDF(*(f"c{i}" for i in range(len(types))))
    return frame.select(*(F.col(f"c{i}").cast(kind).alias(f"c{i}") for i, kind in enumerate(types)))


def rows_of(frame: Any, types: list[DataType]) -> pa.Table:
    from headrace.plans.catalyst import nullable_frame

    return conform(nullable_frame(frame).toArrow(), types)


def bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, its floating-point numbers as the bits they are made of: NaN is no number's equal."""
    same_width = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return (
        column
        if column.type not in same_width
        else pa.chunked_array([chunk.view(same_width[column.type]) for chunk in column.chunks])
    )


@pytest.mark.parametrize("constant", thinned(CONSTANTS, 15))
def test_a_constant_becomes_what_a_query_makes_of_it(catalyst: Any, constant: str) -> None:
    literals = Literals(catalyst)
    types = types_of(catalyst, TYPES)
    found = [literals.rows(f"VALUES ({constant})", [kind]) for kind in types]
    read = [index for index, rows in enumerate(found) if rows is not None]
    if read:
        several = f"VALUES ({', '.join([constant] * len(read))})"
        expected = rows_of(queried(catalyst, several, [types[index] for index in read]), [types[p] for p in read])
        for column, index in enumerate(read):
            rows = found[index]
            assert rows is not None
            assert bits(rows.column(0)).equals(bits(expected.column(column))), TYPES[index]
    for index in set(range(len(TYPES))) - set(read):
        with pytest.raises(Exception, match=r"\w"):
            queried(catalyst, f"VALUES ({constant})", [types[index]])._jdf.queryExecution().optimizedPlan()


def test_rows_of_several_types_are_brought_to_one_first(catalyst: Any) -> None:
    literals = Literals(catalyst)
    types = types_of(catalyst, ["STRING", "DOUBLE", "TIMESTAMP"])
    sql = "VALUES (1, 1, DATE '2024-01-01'), (2.50, 2.5, NULL), (NULL, 3e0, TIMESTAMP '2024-01-01 10:00:00')"
    found = literals.rows(sql, types)
    assert found is not None
    assert found.equals(rows_of(queried(catalyst, sql, types), types))


def test_inserted_constants_need_no_job(home: Any) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP, tags ARRAY<STRING>, n DECIMAL(9, 2) NOT NULL)")
    context = home_of(home).core.sessions.catalyst.session.sparkContext
    context.setJobGroup("constants", "")
    home.execute("INSERT INTO t VALUES (1, '2024-01-01', array('a', NULL), 1.5)")
    home.execute("INSERT INTO t (n, id) VALUES (-2, 2), (CAST('3' AS INT), 1 + 2)")
    assert list(context.statusTracker().getJobIdsForGroup("constants")) == []
    home.execute("INSERT INTO t (n, id) VALUES (abs(-1), 4)")
    assert len(context.statusTracker().getJobIdsForGroup("constants")) > 0
    context.setLocalProperty("spark.jobGroup.id", None)
    found = home.query(
        "SELECT id, CAST(at AS STRING) AS at, tags, CAST(n AS STRING) AS n FROM t ORDER BY id"
    ).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (1, "2024-01-01 00:00:00", ["a", None], "1.50"),
        (2, None, None, "-2.00"),
        (3, None, None, "3.00"),
        (4, None, None, "1.00"),
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("(1, 'x')", "cannot be cast"),
        ("(1, 2147483648)", "overflow"),
        ("(1, 1), (2)", "expected 2 columns but found 1"),
        ("(1, NULL)", "column n is NULL"),
        ("(1, 1, 1)", "INSERT gives 3 columns for 2"),
        ("(1, X'00')", "cannot cast"),
    ],
)
def test_constants_that_do_not_fit_are_refused_with_a_reason(home: Any, values: str, words: str) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)")
    with pytest.raises(HeadraceError) as raised:
        home.execute(f"INSERT INTO t\n  VALUES {values}")
    assert words in str(raised.value)
    assert home.query("SELECT * FROM t").num_rows == 0


@pytest.mark.parametrize("sql", MORE_THAN_CONSTANTS)
def test_more_than_constants_is_left_to_a_query(catalyst: Any, sql: str) -> None:
    assert Literals(catalyst).rows(sql, types_of(catalyst, ["STRING"])) is None
