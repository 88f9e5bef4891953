"""CREATE FLOW ... AS AUTO CDC: what is read of it, what is refused, and that Spark's arguments come to the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

import headrace
from headrace.errors import StatementError
from headrace.sql.flows import AutoCdc, Columns, flow_of
from headrace.sql.statements import CreateView, DropFlow, parse

WHOLE = """
CREATE FLOW f AS AUTO CDC INTO T2 FROM STREAM(`s`)
KEYS (id, `Other key`) IGNORE NULL UPDATES
APPLY AS DELETE WHEN op = 'd' -- gone
SEQUENCE BY struct(at, coalesce(number, 0))
COLUMNS (id, `Other key`, a, b) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (b)
"""


def flow_in(sql: str) -> AutoCdc:
    (statement,) = parse(sql)
    assert isinstance(statement, CreateView)
    assert statement.flow is not None
    assert (statement.name, statement.query) == (statement.flow.target, statement.flow.query)
    return statement.flow


def test_all_clauses_are_read() -> None:
    assert flow_in(WHOLE) == AutoCdc(
        name="f",
        target="t2",
        stream="s",
        keys=("id", "Other key"),
        sequence="struct(at, coalesce(number, 0))",
        deletes="op = 'd'",
        ignore_null_updates=True,
        columns=Columns(("id", "Other key", "a", "b"), all_but=False),
        scd_type=2,
        tracked=Columns(("b",)),
    )


def test_apply_changes_is_the_older_name_of_the_same() -> None:
    assert flow_in(WHOLE.replace("AUTO CDC", "APPLY CHANGES")) == flow_in(WHOLE)
    with pytest.raises(StatementError) as told:
        parse("APPLY CHANGES INTO t FROM s KEYS (id) SEQUENCE BY c")
    assert "CREATE FLOW f AS APPLY CHANGES INTO" in str(told.value.hint)


@pytest.mark.parametrize("stream", ["STREAM(s)", "STREAM s", "s", "STREAM (`s`)"])
def test_what_is_left_out_has_the_defaults_of_spark(stream: str) -> None:
    flow = flow_in(f"CREATE FLOW f AS AUTO CDC INTO t FROM {stream} KEYS (id) SEQUENCE BY c")
    assert flow == AutoCdc(name="f", target="t", stream="s", keys=("id",), sequence="c")


def test_clauses_may_come_in_any_order_and_columns_without_brackets() -> None:
    flow = flow_in(
        "CREATE FLOW f AS AUTO CDC INTO t FROM s KEYS (id) STORED AS SCD TYPE 1 COLUMNS id, a "
        "APPLY AS TRUNCATE WHEN op = 't' SEQUENCE BY c APPLY AS DELETE WHEN op = 'd'"
    )
    assert (flow.columns.names, flow.truncates, flow.deletes) == (("id", "a"), "op = 't'", "op = 'd'")


def test_a_ledger_keeps_a_flow_as_plain_values() -> None:
    for flow in (flow_in(WHOLE), AutoCdc(name="f", target="t", stream="s", keys=("id",), sequence="c")):
        assert flow_of(json.loads(json.dumps(asdict(flow)))) == flow


def test_drop() -> None:
    (dropped,) = parse("DROP FLOW IF EXISTS F")
    assert isinstance(dropped, DropFlow)
    assert (dropped.name, dropped.if_exists) == ("f", True)


BEGIN = "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (id) "


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "expected SEQUENCE BY"),
        ("SEQUENCE BY", "expected an expression"),
        ("SEQUENCE BY c SEQUENCE BY d", "expected IGNORE NULL UPDATES"),
        ("SEQUENCE BY c STORED AS SCD TYPE 3", "expected 1 or 2"),
        ("SEQUENCE BY c COLUMNS (a)", "key id is not among the columns of t"),
        ("SEQUENCE BY c COLUMNS * EXCEPT (ID)", "key id is not among the columns of t"),
        ("SEQUENCE BY c COLUMNS *", "expected EXCEPT"),
        ("SEQUENCE BY c TRACK HISTORY ON (a)", "TRACK HISTORY is for SCD type 2"),
        ("APPLY AS TRUNCATE WHEN x SEQUENCE BY c STORED AS SCD TYPE 2", "APPLY AS TRUNCATE is for SCD type 1"),
        ("IGNORE NULL UPDATES SEQUENCE BY c", "IGNORE NULL UPDATES needs the columns of the target by name"),
        (
            "SEQUENCE BY c COLUMNS (id, a) STORED AS SCD TYPE 2 TRACK HISTORY ON (b)",
            "TRACK HISTORY names a column that the target does not have",
        ),
        ("SEQUENCE BY c STORED AS SCD TYPE 2 TRACK HISTORY ON (id)", "the key of a row never changes"),
        (
            "SEQUENCE BY c COLUMNS (id, __start_at) STORED AS SCD TYPE 2",
            "__START_AT and __END_AT are made by the flow",
        ),
    ],
)
def test_what_is_refused(rest: str, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        parse(BEGIN + rest)
    assert refused.value.message.startswith(message)
    assert refused.value.hint
    assert refused.value.line == 1


def text_of(*given: Any, **named: Any) -> str:
    """The statement that arguments of the public verb come to."""
    texts: list[str] = []
    face: Any = SimpleNamespace(_home=SimpleNamespace(execute=texts.append))
    headrace.Headrace.create_auto_cdc_flow(face, *given, **named)
    return texts[0]


def test_arguments_come_to_the_same_statement() -> None:
    text = text_of(
        "t",
        "s",
        ["id"],
        "seq",
        apply_as_deletes="op = 'd' -- gone",
        except_column_list=["op", "odd `name`"],
        stored_as_scd_type="2",
        track_history_column_list=["a"],
        name="f",
    )
    flow = flow_in(text)
    assert (flow.name, flow.keys, flow.sequence.split(), flow.scd_type) == ("f", ("id",), ["(seq", ")"], 2)
    assert flow.columns == Columns(("op", "odd `name`"))
    assert flow.tracked == Columns(("a",), all_but=False)
    assert flow.deletes.startswith("(op = 'd' -- gone\n")
    assert flow_in(text_of("t", "s", ["id"], "seq")).name == "t"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"once": True}, "a flow always follows its source"),
        ({"stored_as_scd_type": 3}, "there is no SCD type 3"),
        ({"keys": "id"}, "keys is a list of names"),
        ({"keys": []}, "keys is a list of names"),
        ({"column_list": ["id"], "except_column_list": ["a"]}, "column_list and its except list"),
        ({"sequence_by": 5}, "sequence_by is an expression"),
        ({"target": 5}, "target is a name"),
    ],
)
def test_arguments_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(StatementError) as refused:
        text_of(**{"target": "t", "source": "s", "keys": ["id"], "sequence_by": "c", **given})
    assert refused.value.message.startswith(message)
