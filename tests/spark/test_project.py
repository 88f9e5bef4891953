"""Projects on a real home: made, run again, changed, refused, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace
from headrace import Headrace, ProjectError
from headrace.cli.main import run
from headrace.face import home_of
from headrace.project.check import check_definitions
from headrace.project.definitions import Definitions, read_definitions
from headrace.project.folder import open_project
from headrace.project.run import Outcome, run_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = {
    "a_gold": "CREATE VIEW total AS SELECT SUM(n) AS n FROM per_city",
    "b_silver": "CREATE VIEW per_city AS SELECT city, COUNT(*) AS n FROM orders GROUP BY city",
    "c_bronze": "CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING)",
    "d_sources": "CREATE SOURCE shop INTO orders FROM DELTA '${data}/orders' WITH (mode = 'snapshot')",
}


def written(folder: Path, **changed: str) -> Definitions:
    (folder / "sql").mkdir(parents=True, exist_ok=True)
    (folder / "headrace.yml").write_text("name: shop\nconfiguration: {data: data}\n")
    for name, text in {**FILES, **changed}.items():
        (folder / "sql" / f"{name}.sql").write_text(text)
    data = folder / "data" / "orders"
    if not data.exists():
        write_deltalake(str(data), pa.table({"id": [1, 2, 3], "city": ["Oslo", "Oslo", "Rome"]}))
    return read_definitions(open_project(folder))


def actions(outcome: Outcome) -> dict[str, str]:
    return {one.name: one.action for one in outcome.done}


def test_a_project_is_made_once_and_then_followed(home: Headrace, tmp_path: Path) -> None:
    first = run_project(home, written(tmp_path / "p"))
    assert actions(first) == {"orders": "created", "per_city": "created", "total": "created", "shop": "read"}
    assert first.receipt is not None
    assert (home.epoch, first.receipt.applied) == (1, {"orders": 3})
    assert home.query("SELECT n FROM total").to_pylist() == [{"n": 3}]

    again = run_project(home, written(tmp_path / "p", b_silver=f"-- Silver\n{FILES['b_silver']}\n"))
    assert (home.epoch, again.receipt, set(actions(again).values())) == (1, None, {"unchanged"})

    # A view that others read is replaced together with one of them, whose old text would not fit it.
    home.execute("CREATE VIEW beside AS SELECT city FROM per_city")
    changed = written(
        tmp_path / "p",
        b_silver="CREATE VIEW per_city AS SELECT city, COUNT(*) AS orders FROM orders WHERE id > 1 GROUP BY city",
        a_gold="CREATE VIEW total AS SELECT SUM(orders) AS n FROM per_city",
    )
    after = run_project(home, changed)
    assert actions(after) == {"orders": "unchanged", "per_city": "replaced", "total": "replaced", "shop": "unchanged"}
    assert home.epoch == 3
    assert home.query("SELECT n FROM total").to_pylist() == [{"n": 2}]
    home.apply({"orders": [{"insert": {"id": 4, "city": "Bern"}}]})
    assert home.query("SELECT COUNT(*) AS n FROM beside").to_pylist() == [{"n": 3}]
    assert home.verify().ok


def test_a_project_survives_its_home_being_closed_and_altered(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        run_project(hr, written(tmp_path / "p", a_gold="CREATE VIEW all_of_it AS SELECT * FROM orders"))
        hr.execute("ALTER TABLE orders ADD COLUMN note STRING")
        assert hr.query("SELECT * FROM all_of_it").column_names == ["id", "city"]
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert hr.query("SELECT * FROM all_of_it").column_names == ["id", "city"]
        bronze = "CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, note STRING)"
        definitions = written(tmp_path / "p", a_gold="CREATE VIEW all_of_it AS SELECT * FROM orders", c_bronze=bronze)
        outcome = run_project(hr, definitions)
        assert actions(outcome) == {
            "orders": "unchanged",
            "per_city": "unchanged",
            "all_of_it": "replaced",
            "shop": "unchanged",
        }
        assert outcome.notes == ["view all_of_it is replaced: its text gives other columns than when it was made"]
        assert hr.query("SELECT * FROM all_of_it").column_names == ["id", "city", "note"]
        assert hr.verify().ok


@pytest.mark.slow
def test_what_has_drifted_is_brought_along_or_told(home: Headrace, tmp_path: Path) -> None:
    gold = "CREATE VIEW again AS SELECT * FROM all_of_it; CREATE VIEW all_of_it AS SELECT * FROM orders"
    joined = "CREATE VIEW joined AS\nSELECT id, note FROM orders JOIN notes ON code = id"
    bronze = "CREATE TABLE notes (code BIGINT, note STRING); CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING"
    run_project(home, written(tmp_path / "p", a_gold=gold, c_bronze=f"{bronze})", e_more=joined))
    home.execute("ALTER TABLE orders ADD COLUMN note STRING")
    renamed = FILES["b_silver"].replace("per_city", "orders_per_city")
    altered = {"a_gold": gold, "b_silver": renamed, "c_bronze": f"{bronze}, note STRING)", "e_more": joined}
    outcome = run_project(home, written(tmp_path / "p", **altered))
    assert {name for name, action in actions(outcome).items() if action == "replaced"} == {"all_of_it"}
    assert home.query("SELECT * FROM again").column_names == ["id", "city", "note"]
    epoch = home.epoch
    notes = run_project(home, written(tmp_path / "p", **altered)).notes
    assert notes[0].startswith("view joined goes on as it was made, but could not be made anew: sql/e_more.sql:2:")
    assert notes[1:] == ["view per_city is not in the project; it is kept, and kept current, until DROP VIEW per_city"]
    assert home.epoch == epoch
    assert home.verify().ok


def test_what_a_home_cannot_be_brought_to_is_told_and_nothing_is_touched(home: Headrace, tmp_path: Path) -> None:
    run_project(home, written(tmp_path / "p"))
    write_deltalake(str(tmp_path / "p" / "data" / "other"), pa.table({"id": [1], "city": ["Oslo"]}))
    changed = written(
        tmp_path / "p",
        b_silver=f"{FILES['b_silver']} HAVING COUNT(*) > 1",
        c_bronze="CREATE TABLE orders (id BIGINT PRIMARY KEY, amount INT)",
        d_sources=FILES["d_sources"].replace("/orders'", "/other'"),
    )
    with pytest.raises(ProjectError, match="2 problems in the project") as error:
        run_project(home, changed)
    assert error.value.detail == (
        "sql/c_bronze.sql:1:1: table orders has other columns in the home\n"
        "  hint: write these in the project, or change the home: "
        "ALTER TABLE orders ADD COLUMN amount INT; ALTER TABLE orders DROP COLUMN city\n"
        "sql/d_sources.sql:1:1: source shop is another one in the home\n"
        "  hint: give it another name, or write DROP SOURCE shop, which keeps the rows, and run the project again"
    )
    assert home.epoch == 1
    with pytest.raises(ProjectError, match=r"sql/a_gold.sql:1:33: "):
        run_project(home, written(tmp_path / "p", a_gold="CREATE VIEW total AS SELECT SUM(nn) AS n FROM per_city"))
    assert home.epoch == 1
    assert home.query("SELECT n FROM total").to_pylist() == [{"n": 3}]


def test_a_check_finds_everything_at_once(spark: SparkSession, tmp_path: Path) -> None:
    definitions = written(
        tmp_path / "p",
        b_silver="CREATE VIEW per_city AS\nSELECT town, COUNT(*) AS n FROM orders GROUP BY town",
        c_bronze="CREATE TABLE orders (id INT PRIMARY KEY, city STRING);\nCREATE TABLE odd (a NONSENSE);",
        e_more="CREATE VIEW lonely AS SELECT * FROM nowhere;\nCREATE SOURCE late INTO orders FROM DELTA 'nowhere' "
        "WITH (mode = 'snapshot');",
    )
    findings = check_definitions(definitions, spark)
    assert not findings.ok
    assert [(one.file, one.line) for one in findings.problems] == [
        ("sql/b_silver.sql", 2),
        ("sql/c_bronze.sql", 2),
        ("sql/d_sources.sql", 1),
        ("sql/e_more.sql", 1),
    ]
    assert "column id is bigint, not int" in findings.problems[2].detail
    assert findings.notes == [f"source late is not there yet: {tmp_path / 'p' / 'nowhere'}"]
    assert check_definitions(written(tmp_path / "q"), spark).ok
    circle = written(tmp_path / "q", e_more="CREATE VIEW a AS SELECT * FROM b;\nCREATE VIEW b AS SELECT * FROM a")
    assert [str(one) for one in check_definitions(circle, spark).problems] == [
        "sql/e_more.sql:1:1: view a would read itself"
    ]


def test_a_view_over_what_a_source_would_make_is_told_to_declare_it(spark: SparkSession, tmp_path: Path) -> None:
    source = "CREATE SOURCE bank FROM KAFKA 'localhost:9092/bank.*' WITH (format = 'debezium')"
    found = check_definitions(
        written(tmp_path / "p", e_more=f"{source};\nCREATE VIEW lonely AS SELECT * FROM accounts"), spark
    )
    assert [(one.line, one.message) for one in found.problems] == [(2, "unknown table or view")]
    assert "CREATE TABLE" in found.problems[0].hint


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    return int(ended.value.code or 0)


def test_a_new_project_runs_from_the_command_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    assert code_of("init", "shop") == 0
    monkeypatch.chdir(tmp_path / "shop")
    assert code_of("check") == 0
    assert "shop: 2 tables, 2 views, 0 sources, nothing wrong" in capsys.readouterr().out
    assert code_of("run") == 0
    said = capsys.readouterr().out
    assert "created view revenue_by_city" in said
    assert "shop is at epoch 1" in said
    assert code_of("run", "--progress", "changes.sql") == 0
    capsys.readouterr()
    assert code_of("query", "SELECT revenue FROM revenue_by_city ORDER BY city", "--json") == 0
    assert capsys.readouterr().out.strip() == '[{"revenue": "10.00"}, {"revenue": "12.50"}]'
    (tmp_path / "in").mkdir()
    (tmp_path / "shop" / "sql" / "more.sql").write_text(f"CREATE SOURCE s INTO orders FROM FILES '{tmp_path / 'in'}'")
    assert code_of("run") == 0
    said = capsys.readouterr().out
    assert "created source s" in said
    assert "headrace serve has them read" in said
    for verb in (("source", "list"), ("status",)):
        assert code_of(*verb) == 0
        assert "no source is read now; headrace serve" in capsys.readouterr().out
    assert code_of("query", "SHOW TABLES") == 1
    assert "echo 'SHOW TABLES' | headrace run -" in capsys.readouterr().err
    (tmp_path / "shop" / "sql" / "views.sql").write_text("CREATE VIEW v AS SELECT nothing FROM orders")
    assert code_of("check", "--json") == 1
    assert '"sql/views.sql", "line": 1' in capsys.readouterr().out


EVENTS = {
    "a_gold": "CREATE VIEW total AS SELECT count(*) AS n, max(city) AS city FROM people",
    "b_silver": """CREATE PROJECTION people FOR EVENT STORE visits AGGREGATE TYPE 'Person' (name STRING, city STRING);
        CREATE EVENT TYPE 'Born' FOR EVENT STORE visits
        SCHEMA '{"type": "object", "required": ["name"]}' ENCRYPTED ('secret')""",
    "c_bronze": "CREATE EVENT STORE visits WITH (snapshot_events = 10)",
}


def event_project(folder: Path, **changed: str) -> Definitions:
    (folder / "sql").mkdir(parents=True, exist_ok=True)
    (folder / "headrace.yml").write_text("name: visits\n")
    for name, text in {**EVENTS, **changed}.items():
        (folder / "sql" / f"{name}.sql").write_text(text)
    return read_definitions(open_project(folder))


@pytest.mark.slow
def test_event_stores_types_and_projections_are_part_of_a_project(
    home: Headrace, spark: SparkSession, tmp_path: Path
) -> None:
    definitions = event_project(tmp_path / "p")
    assert check_definitions(definitions, spark).problems == []
    first = run_project(home, definitions)
    assert actions(first) == {
        "visits": "created",
        "Born version 1 of visits": "created",
        "people": "created",
        "total": "created",
    }
    store = home.events("visits")
    with pytest.raises(headrace.EventsRejected):
        store.append("Person", "p1", [{"event_type": "Born", "event_data": {"city": "Oslo"}}])
    store.append("Person", "p1", [{"event_type": "Born", "event_data": {"name": "Ada", "city": "Oslo"}}])
    assert home.query("SELECT n, city FROM total").to_pylist() == [{"n": 1, "city": "Oslo"}]

    epoch = home.epoch
    again = run_project(home, event_project(tmp_path / "p"))
    assert (home.epoch, again.receipt, again.notes, set(actions(again).values())) == (epoch, None, [], {"unchanged"})

    # A projection with another field is replaced, with what reads it; a new version of a type is registered.
    wider = EVENTS["b_silver"].replace("city STRING)", "city STRING FROM '$.name')") + (
        "; CREATE EVENT TYPE 'Born' VERSION 2 FOR EVENT STORE visits"
    )
    changed = run_project(home, event_project(tmp_path / "p", b_silver=wider))
    assert actions(changed)["people"] == "replaced"
    assert actions(changed)["Born version 2 of visits"] == "created"
    assert home.query("SELECT n, city FROM total").to_pylist() == [{"n": 1, "city": "Ada"}]
    assert home.verify().ok

    home.execute("CREATE EVENT STORE others")
    assert "event store others is not in the project" in run_project(home, event_project(tmp_path / "p")).notes[0]


def test_what_a_store_of_a_home_cannot_be_brought_to_is_told(
    home: Headrace, spark: SparkSession, tmp_path: Path
) -> None:
    run_project(home, event_project(tmp_path / "p"))
    epoch = home.epoch
    other = EVENTS["b_silver"].replace('["name"]', '["city"]')
    with pytest.raises(ProjectError) as error:
        run_project(
            home,
            event_project(
                tmp_path / "q",
                b_silver=other,
                c_bronze="CREATE EVENT STORE visits WITH (snapshot_events = 20)",
                d_more="CREATE EVENT STORE fresh; CREATE TABLE fresh_types (a INT);"
                "CREATE EVENT TYPE 'X' FOR EVENT STORE absent;"
                "CREATE EVENT TYPE 'Y' FOR EVENT STORE fresh SCHEMA 'no schema'",
            ),
        )
    told = error.value.detail
    assert "event store visits has other options in the home" in told
    assert "Born version 1 is registered already, otherwise" in told
    assert "fresh_types exists already" in told
    assert "there is no event store absent" in told
    assert "sql/d_more.sql:1:" in told
    assert told.count("sql/") == 5
    assert (home.epoch, "fresh" in home_of(home).core.catalog) == (epoch, False)
    found = check_definitions(event_project(tmp_path / "q"), spark)
    # What is wrong with a type of a store that is wrong itself follows from that.
    assert [one.message for one in found.problems] == ["fresh_types exists already", "there is no event store absent"]
