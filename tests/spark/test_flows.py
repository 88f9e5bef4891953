"""AUTO CDC flows: any order, repetition and batching of events gives the same rows and the same history."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.capture.connector import Arrival
from headrace.capture.formats.debezium import decoder
from headrace.capture.options import FormatOptions
from headrace.capture.record import Record
from headrace.epoch.batch import Verdicts
from headrace.errors import HeadraceError, RelationNameError, ViewEvaluationError
from headrace.sources.intake import Progress, call_for, decode
from tests.recorded_streams import batches, recorded
from tests.thinned import thinned

Event = dict[str, Any]
COLUMNS = ("id", "a", "b")


def event(number: int, seq: int, a: Any, b: Any, op: str = "put") -> Event:
    return {"id": number, "seq": seq, "a": a, "b": b, "op": op}


def by_key(events: list[Event]) -> Iterator[tuple[int, list[Event]]]:
    """The events of each key by their sequence; of equal ones a delete counts, else that with the least values."""
    single: dict[tuple[int, int], Event] = {}
    for one in events:
        known = single.get((one["id"], one["seq"]))
        if known is None or _rank(one) < _rank(known):
            single[one["id"], one["seq"]] = one
    ordered = sorted(single.values(), key=lambda one: (one["id"], one["seq"]))
    for key, of_key in groupby(ordered, lambda one: one["id"]):
        yield key, list(of_key)


def _rank(one: Event) -> Any:
    return one["op"] != "delete", [(one[name] is not None, one[name]) for name in ("a", "b")]


def filled(events: list[Event]) -> list[Event]:
    """NULLs replaced by what the key had before."""
    found: list[Event] = []
    before: Event = {}
    for one in events:
        whole = {name: before.get(name) if value is None else value for name, value in one.items()}
        found.append(whole)
        before = {} if one["op"] == "delete" else whole
    return found


def latest(events: list[Event], ignore_nulls: bool = False) -> set[Any]:
    """What SCD type 1 must hold."""
    emptied = max((one["seq"] for one in events if one["op"] == "truncate"), default=None)
    rows: set[Any] = set()
    for _, of_key in by_key([one for one in events if one["op"] != "truncate"]):
        last = (filled(of_key) if ignore_nulls else of_key)[-1]
        if last["op"] != "delete" and (emptied is None or last["seq"] > emptied):
            rows.add(tuple(last[name] for name in COLUMNS))
    return rows


def history(events: list[Event], tracked: tuple[str, ...] = COLUMNS) -> set[Any]:
    """What SCD type 2 must hold: walked through event by event, as a person would."""
    rows: set[Any] = set()
    for _, of_key in by_key(events):
        current: Event | None = None
        begun = None
        for one in of_key:
            same = current is not None and all(current[name] == one[name] for name in tracked)
            if one["op"] != "delete" and same:
                current = one
                continue
            if current is not None:
                rows.add((*(current[name] for name in COLUMNS), begun, one["seq"]))
            current, begun = (None, None) if one["op"] == "delete" else (one, one["seq"])
        if current is not None:
            rows.add((*(current[name] for name in COLUMNS), begun, None))
    return rows


def held(hr: Any, name: str) -> set[Any]:
    found = [tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}").to_pylist()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.fixture(scope="module")
def flows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headrace.open(tmp_path_factory.mktemp("flows") / "home", spark=spark) as hr:
        hr.execute(
            """
            CREATE TABLE s (id INT, seq INT, a INT, b STRING, op STRING);
            CREATE VIEW changes AS SELECT * FROM s WHERE op != 'truncate';
            CREATE FLOW f1 AS AUTO CDC INTO rows_now FROM STREAM(s) KEYS (id) APPLY AS DELETE WHEN op = 'delete'
                APPLY AS TRUNCATE WHEN op = 'truncate' SEQUENCE BY seq COLUMNS * EXCEPT (op, seq);
            CREATE FLOW f2 AS AUTO CDC INTO all_rows FROM STREAM(changes) KEYS (id) APPLY AS DELETE WHEN op = 'delete'
                SEQUENCE BY seq COLUMNS * EXCEPT (op, seq) STORED AS SCD TYPE 2;
            CREATE FLOW f4 AS AUTO CDC INTO whole_rows FROM STREAM(changes) KEYS (id) IGNORE NULL UPDATES
                APPLY AS DELETE WHEN op = 'delete' SEQUENCE BY seq COLUMNS (id, a, b);
            CREATE VIEW current_rows AS SELECT id, a, b FROM all_rows WHERE __END_AT IS NULL
            """
        )
        hr.create_auto_cdc_flow(
            "tracked_rows",
            "changes",
            ["id"],
            "seq",
            apply_as_deletes="op = 'delete'",
            column_list=["id", "a", "b"],
            stored_as_scd_type=2,
            track_history_except_column_list=["b"],
            name="f3",
        )
        yield hr


def empty(hr: Any) -> None:
    hr.apply({"s": [{"delete": row} for row in hr.query("SELECT * FROM s").to_pylist()]})


def check(hr: Any, events: list[Event]) -> None:
    changes = [one for one in events if one["op"] != "truncate"]
    assert held(hr, "rows_now") == latest(events)
    assert held(hr, "all_rows") == history(changes)
    assert held(hr, "tracked_rows") == history(changes, ("id", "a"))
    assert held(hr, "whole_rows") == latest(changes, ignore_nulls=True)
    assert held(hr, "current_rows") == latest(changes)


@pytest.mark.parametrize("seed", thinned(range(3), 3))
def test_any_order_and_batching_of_events_gives_the_same_rows_and_history(flows: Any, seed: int) -> None:
    chance = random.Random(seed)
    empty(flows)
    events = [
        event(
            chance.randint(1, 3),
            chance.randint(1, 9),
            chance.choice([1, 2, None]),
            chance.choice(["x", "y", None]),
            chance.choice(["put", "put", "put", "delete", "truncate" if chance.random() < 0.2 else "put"]),
        )
        for _ in range(24)
    ]
    # Some come twice, all of them in any order.
    arriving = events + chance.sample(events, 6)
    chance.shuffle(arriving)
    seen: list[Event] = []
    while arriving:
        batch = [arriving.pop() for _ in range(min(len(arriving), chance.randint(1, 9)))]
        seen += batch
        flows.apply({"s": [{"insert": one} for one in batch]})
        check(flows, seen)
    assert flows.verify().ok
    # An event that is taken back was never there.
    gone = [seen.pop(chance.randrange(len(seen))) for _ in range(5)]
    flows.apply({"s": [{"delete": one} for one in gone]})
    check(flows, seen)


def test_a_late_event_splits_a_row_of_the_history(flows: Any) -> None:
    empty(flows)
    flows.apply({"s": [{"insert": one} for one in (event(1, 10, 1, "x"), event(1, 30, 3, "x"))]})
    assert held(flows, "all_rows") == {(1, 1, "x", 10, 30), (1, 3, "x", 30, None)}
    flows.apply({"s": [{"insert": event(1, 20, 2, "x")}]})
    assert held(flows, "all_rows") == {(1, 1, "x", 10, 20), (1, 2, "x", 20, 30), (1, 3, "x", 30, None)}
    flows.apply({"s": [{"insert": event(1, 25, None, None, "delete")}]})
    assert held(flows, "all_rows") == {(1, 1, "x", 10, 20), (1, 2, "x", 20, 25), (1, 3, "x", 30, None)}
    for name in ("rows_now", "all_rows", "tracked_rows", "whole_rows"):
        assert flows.explain(name).incremental, flows.explain(name).reasons


def test_an_event_without_a_sequence_is_refused(flows: Any) -> None:
    with pytest.raises(ViewEvaluationError) as refused:
        flows.apply({"s": [{"insert": {**event(1, 1, 1, "x"), "seq": None}}]})
    assert "SEQUENCE BY of flow f" in str(refused.value)


def test_flows_are_shown_kept_and_dropped_with_their_targets(tmp_path: Path, spark: SparkSession) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE s (id INT, seq TIMESTAMP, a INT)")
        flow = "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (id) SEQUENCE BY seq STORED AS SCD TYPE 2"
        hr.execute(flow)
        hr.execute(flow.replace("FLOW f", "FLOW IF NOT EXISTS f"))
        hr.execute("CREATE VIEW n AS SELECT count(*) AS n FROM t WHERE __END_AT IS NULL")
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("INSERT INTO s VALUES (1, TIMESTAMP '2026-01-01 00:00:00', 1)")
        (shown,) = hr.execute("SHOW FLOWS").to_pylist()
        expected = {"name": "f", "target": "t", "stream": "s", "keys": "id", "sequence_by": "seq", "scd_type": 2}
        assert shown == {**expected, "incremental": True, "rows": 1}
        assert held(hr, "n") == {(1,)}
        for statement, message in (
            (flow, "flow f exists already"),
            (flow.replace("FLOW f", "FLOW g"), "t exists already"),
            (flow.replace("INTO t", "INTO s").replace("FLOW f", "FLOW g"), "s exists already"),
            ("DROP VIEW t", "t is the target of flow f"),
            ("CREATE OR REPLACE VIEW t AS SELECT 1 AS one", "t is the target of flow f"),
            ("DROP FLOW f", "t is in use"),
            ("DROP FLOW ff", "there is no flow ff"),
        ):
            with pytest.raises(RelationNameError) as refused:
                hr.execute(statement)
            assert refused.value.message == message
        with pytest.raises(HeadraceError, match="nowhere"):
            hr.execute(flow.replace("FLOW f", "FLOW g").replace("INTO t", "INTO u").replace("BY seq", "BY nowhere"))
        hr.execute("DROP VIEW n; DROP FLOW f; DROP FLOW IF EXISTS f")
        assert hr.execute("SHOW FLOWS").num_rows == 0
        assert "t" not in [one["name"] for one in hr.execute("SHOW VIEWS").to_pylist()]


def test_what_is_wrong_with_a_flow_is_told_in_the_words_of_its_statement(flows: Any) -> None:
    flow = "CREATE FLOW g AS AUTO CDC INTO u FROM STREAM(s) KEYS (id) SEQUENCE BY seq"
    for statement, told in (
        (flow.replace("(id)", "(idd)"), "s has no column idd, which KEYS of flow g names"),
        (flow + " COLUMNS (id, bb)", "s has no column bb, which COLUMNS of flow g names"),
        (
            flow + " STORED AS SCD TYPE 2 TRACK HISTORY ON (bb)",
            "s has no column bb, which TRACK HISTORY ON of flow g names",
        ),
        (flow.replace("STREAM(s)", "STREAM(ss)"), "there is no table or view ss, which flow g is to follow"),
        (flow.replace("BY seq", "BY sequ"), "SEQUENCE BY of flow g: unknown column"),
        (flow.replace("SEQUENCE", "APPLY AS DELETE WHEN op = 'gone' + SEQUENCE"), "APPLY AS DELETE WHEN of flow g: "),
        (flow.replace("SEQUENCE", "APPLY AS TRUNCATE WHEN oops = 1 SEQUENCE"), "APPLY AS TRUNCATE WHEN of flow g: "),
    ):
        with pytest.raises(HeadraceError) as refused:
            flows.execute(f"\n\n   {statement}")
        assert refused.value.message.startswith(told), refused.value
        assert "__flow" not in str(refused.value)
        # Whatever place is told is one of the statement, which has three lines.
        assert refused.value.line in (3, None), refused.value
        assert "line 1" not in str(refused.value)
        assert "u" not in [one["name"] for one in flows.execute("SHOW VIEWS").to_pylist()]


RAW = ("event_id", "operation", "before", "after", "source_at", "position")
HOW_TO = Path(__file__).parents[2] / "docs/how-to/keep-history-of-a-captured-table.md"


def raw_rows(records: list[Record]) -> list[Any]:
    """What a source keeps of records, with the columns of the how-to."""
    arrivals = [Arrival(one, {}) for one in records]
    decoded = decode(arrivals, lambda _: "orders", lambda _: decoder(None, FormatOptions()).decode)
    call, _ = call_for("shop", decoded, Progress(), raw=True)
    assert call.after is not None
    rows = [one["insert"] for one in call.after(Verdicts({}, {})).get("shop_raw", ())]  # pyright: ignore
    for row in rows:
        for image in ("before", "after"):
            known = json.loads(row[image] or "null")
            row[image] = known and json.dumps({"id": known["id"], "customer": 7, "amount": known.get("n")})
    return [{"insert": {name: row[name] for name in RAW}} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_the_history_of_a_captured_table_is_the_same_whatever_order_its_changes_come_in(home: Any, seed: int) -> None:
    chance = random.Random(seed)
    kinds = ["put", "put", "put", "delete", "move", "commit", "commit", "restart"]
    steps: list[Any] = []
    for kind in chance.choices(kinds, k=40):
        key, to = chance.randint(1, 4), chance.randint(1, 4)
        parts = {"commit": (), "restart": (chance.randint(1, 9),), "move": ("orders", key, to)}
        steps.append((kind, *parts.get(kind, ("orders", key))))
    database = recorded([*steps[:30], ("restore",), *steps[30:]])
    home.execute(
        """CREATE TABLE shop_raw (event_id STRING, operation STRING, before STRING, after STRING, source_at TIMESTAMP,
                                  position STRING)"""
    )
    home.execute(re.findall(r"^```sql\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1])
    orders = [one for one in database.records if one.topic.endswith("orders")]
    for batch in batches(orders, seed):
        home.apply({"shop_raw": raw_rows(batch)})
    sql = "SELECT id, CAST(amount AS INT), __START_AT.first_offset, __END_AT.first_offset AS ended FROM order_history"
    found = {tuple(row.values()) for row in home.query(sql).to_pylist()}
    assert len(found) > 8
    assert found == database.history("orders")
    assert home.explain("order_history").incremental
    assert home.verify().ok
