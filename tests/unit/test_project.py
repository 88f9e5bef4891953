"""headrace.yml and the definitions of a project, without Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import ProjectError, RelationNameError
from headrace.project.definitions import (
    Definitions,
    makes_tables,
    read_definitions,
    refuse_problems,
    script_makes_followed,
)
from headrace.project.folder import Project, is_project, open_project
from headrace.project.template import make_project
from headrace.sql.statements import CreateSource, CreateView


def project(folder: Path, yml: str = "name: shop", **files: str) -> Project:
    (folder / "headrace.yml").write_text(yml)
    for name, text in files.items():
        path = folder / "sql" / f"{name}.sql"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return open_project(folder)


def definitions(folder: Path, **files: str) -> Definitions:
    return read_definitions(project(folder, **files))


def test_all_keys_of_a_pipeline_are_read(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        """
name: shop
storage: file:///somewhere/else
catalog: main
schema: sales
configuration: {spark.sql.shuffle.partitions: 8, data: here, quick: true}
libraries:
  - glob: {include: sql/**}
settings: {small_bound: 7, keep_time: 3600}
""",
        a="",
    )
    assert (found.name, found.home) == ("shop", "/somewhere/else")
    assert found.values == {"spark.sql.shuffle.partitions": "8", "data": "here", "quick": "true"}
    assert (found.content.settings.small_bound, found.content.settings.keep_time) == (7, timedelta(hours=1))
    assert found.notes == [
        "catalog has no effect: a home has one schema",
        "schema has no effect: a home has one schema",
        "configuration spark.sql.shuffle.partitions is not handed to Spark",
    ]
    assert [path.name for path in found.sql_files()] == ["a.sql"]


def test_a_home_may_lie_in_an_object_store(tmp_path: Path) -> None:
    found = project(tmp_path, "name: shop\nstorage: s3://bucket/shop\n", a="")
    assert found.home == "s3://bucket/shop"
    assert [path.name for path in found.sql_files()] == ["a.sql"]


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project(tmp_path, t="CREATE SOURCE s INTO t FROM DELTA 'data/t' WITH (mode = 'snapshot')")
    monkeypatch.chdir("/")
    assert made.home == str(tmp_path / "headrace-home")
    (source,) = read_definitions(made).sources
    assert isinstance(source.statement, CreateSource)
    assert source.statement.location == str(tmp_path / "data" / "t")
    assert is_project(tmp_path)
    assert is_project(tmp_path / "headrace.yml")
    assert not is_project(tmp_path / "sql")


@pytest.mark.parametrize(
    ("yml", "said"),
    [
        ("nmae: shop", "name: Field required; nmae: there is no such key, but there is name."),
        ("name: shop\nsettings: {small_bound: many}", "settings.small_bound"),
        ("name: shop\nsettings: {smal_bound: 1}", "smal_bound: there is no such key, but there is small_bound"),
        ("name: shop\nlibraries: [sql]", "libraries.0"),
        ("- name", "holds no keys"),
        ("name: [", "headrace.yml:1:8"),
    ],
)
def test_a_file_that_is_not_as_it_must_be(tmp_path: Path, yml: str, said: str) -> None:
    with pytest.raises(ProjectError) as error:
        project(tmp_path, yml)
    assert said in f"{error.value.message} {error.value.detail}"
    assert error.value.hint


def values_of_values(kind: str) -> str:
    """A few hundred bytes that stand for millions of values."""
    lines = [f"a{one}: &a{one} " + kind.format(",".join([f"*a{one - 1}"] * 20)) for one in range(1, 6)]
    return "\n".join(["name: shop", "a0: &a0 {x: 1}", *lines])


@pytest.mark.parametrize(
    ("yml", "said"),
    [
        ("name: shop\nstorage: a\x07b", "headrace.yml:2:11 cannot be read as YAML Found a character that YAML has not"),
        ("name: 2001-13-45", "headrace.yml:1:7 cannot be read as YAML While reading a value of type timestamp"),
        ("name: 2001-01-01T99:99:99Z", "hour must be in 0..23."),
        ("name: 2001-01-01T00:00:00+99:00", "headrace.yml:1:7 cannot be read as YAML"),
        ("name: " + "9" * 5000, "5000 digits"),
        ("name: shop\nconfiguration: {a: 0x" + "f" * 4000 + "}", "headrace.yml:2:20"),
        ("name: !!timestamp soon", "While reading a value of type timestamp, found none."),
        ("name: !!int ''", "While reading a value of type int, found none."),
        ('name: "\\ud800"', "surrogates not allowed."),
        ("name: " + "[" * 3000, "too deep to be read"),
        ("name: &a [*a]", "one that holds itself"),
        (values_of_values("{{<<: [{}]}}"), "found more than 100000 values"),
        (values_of_values("[{}]"), "found more than 100000 values"),
        ("name: a\n---\nname: b", "headrace.yml:2:1 cannot be read as YAML Expected a single document"),
        ("name: shop\nsettings: {1: 2}", "settings: Value error, 1 is no name of a setting."),
        ("name: shop\nsettings: {_env_file: x}", "_env_file is no name of a setting"),
        ("", "headrace.yml holds no keys"),
    ],
)
def test_a_file_that_nobody_writes_by_hand_is_told(tmp_path: Path, yml: str, said: str) -> None:
    with pytest.raises(ProjectError) as error:
        project(tmp_path, yml)
    assert said in f"{error.value.message} {error.value.detail}"
    assert error.value.detail.endswith(".")
    assert not error.value.detail.endswith("..")
    assert error.value.hint


def test_anchors_and_what_they_stand_for_are_read(tmp_path: Path) -> None:
    yml = "name: &n shop\nconfiguration: &c {a: *n}\nsettings: {data_keys: {<<: *c, b: id}}"
    found = project(tmp_path, yml)
    assert found.values == {"a": "shop"}
    assert found.content.settings.data_keys == {"a": "shop", "b": "id"}


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("~nosuchuser/x", "the storage ~nosuchuser/x cannot be read"),
        ("s3://[bad/x", "the storage s3://[bad/x cannot be read"),
        ("file://[bad/x", "cannot be read"),
        ("file://otherhost/x", "the storage file://otherhost/x is no folder of this machine"),
        ("file:///x/a#b", "is no folder of this machine"),
        ("file:///x/a?b", "is no folder of this machine"),
    ],
)
def test_a_storage_that_is_none_is_refused(tmp_path: Path, storage: str, said: str) -> None:
    made = project(tmp_path, f"name: shop\nstorage: {storage}")
    with pytest.raises(ProjectError) as error:
        _ = made.home
    assert said in error.value.message
    assert error.value.detail
    assert str(tmp_path / "headrace.yml") in error.value.hint


@pytest.mark.parametrize(
    ("storage", "home"), [("file://localhost/x/a%20b", "/x/a b"), ("file:///x;y", "/x;y"), ("/x?y#z", "/x?y#z")]
)
def test_a_storage_of_this_machine_is_taken_whole(tmp_path: Path, storage: str, home: str) -> None:
    assert project(tmp_path, f"name: shop\nstorage: {storage}").home == home


@pytest.mark.parametrize("include", ["**a/*.sql", ".", "./", "x" * 5000, "x/" * 3000, "/x", "../x"])
def test_a_library_that_names_no_files_is_told(tmp_path: Path, include: str) -> None:
    made = project(tmp_path, f"name: shop\nlibraries: [{{glob: {{include: '{include}'}}}}]")
    with pytest.raises(ProjectError, match="the library") as error:
        made.sql_files()
    assert error.value.detail
    assert error.value.hint


def test_no_project_and_no_files(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="there is no project"):
        open_project(tmp_path)
    with pytest.raises(ProjectError, match="has no SQL files"):
        project(tmp_path).sql_files()
    (tmp_path / "views.py").write_text("")
    with pytest.raises(ProjectError, match=r"views\.py is not a SQL file"):
        project(tmp_path, "name: s\nlibraries: [{glob: {include: '*'}}]").sql_files()
    with pytest.raises(ProjectError, match="lies outside of the project"):
        project(tmp_path, "name: s\nlibraries: [{glob: {include: ../x.sql}}]").sql_files()


def test_files_of_the_home_do_not_count(tmp_path: Path) -> None:
    made = project(tmp_path, t="CREATE TABLE t (a INT)")
    (tmp_path / "headrace-home").mkdir()
    (tmp_path / "headrace-home" / "left.sql").write_text("CREATE TABLE left (a INT)")
    assert [path.name for path in made.sql_files()] == ["t.sql"]


def test_views_come_after_what_they_read_whatever_the_file(tmp_path: Path) -> None:
    found = definitions(
        tmp_path,
        a="CREATE VIEW top AS SELECT * FROM `middle` JOIN Bottom USING (a); CREATE VIEW loop AS SELECT * FROM loop",
        b="CREATE VIEW middle AS SELECT a FROM bottom",
        c="CREATE VIEW bottom AS SELECT a FROM t; CREATE TABLE t (a INT)",
    )
    assert [one.name for one in found.views] == ["loop", "bottom", "middle", "top"]
    assert [one.name for one in found.tables] == ["t"]
    assert not found.problems


def test_a_circle_is_told_as_one_when_spark_does_not_find_a_name(tmp_path: Path) -> None:
    found = definitions(
        tmp_path,
        a="CREATE VIEW x AS SELECT * FROM y;\nCREATE VIEW y AS SELECT * FROM z; CREATE VIEW z AS SELECT x.a FROM x",
    )
    problem = found.problem(found.views[0], unknown("y"))
    assert str(problem) == "sql/a.sql:1:1: view x would read itself"
    assert problem.detail == "It reads y, which reads z, which reads x."


def test_a_word_that_is_no_relation_makes_no_circle(tmp_path: Path) -> None:
    found = definitions(tmp_path, a="CREATE VIEW x AS SELECT a AS y FROM t; CREATE VIEW y AS SELECT b FROM x")
    assert found.problem(found.views[0], unknown("t")).message == "unknown table or view"


def unknown(name: str) -> RelationNameError:
    error = RelationNameError("unknown table or view")
    error.unknown = name
    return error


def test_every_problem_keeps_its_own_hint(tmp_path: Path) -> None:
    found = definitions(tmp_path, a="INSERT INTO t VALUES (1);\nCREATE TABLE t (a INT); CREATE TABLE t (b INT)")
    with pytest.raises(ProjectError) as error:
        refuse_problems(found.problems)
    assert error.value.detail.splitlines()[1:4:2] == [
        "  hint: put it into a script of its own and run that: headrace run script.sql",
        "  hint: keep one",
    ]
    with pytest.raises(ProjectError) as error:
        refuse_problems(found.problems[:1])
    assert error.value.hint == "put it into a script of its own and run that: headrace run script.sql"


def test_all_problems_are_listed_with_their_places(tmp_path: Path) -> None:
    found = definitions(
        tmp_path,
        a="CREATE TABLE t (a INT);\n  CREATE TABEL u (a INT);\nCREATE TABLE t (b INT)",
        b="INSERT INTO t VALUES (1);\nCREATE VIEW v AS SELECT ';",
        c="CREATE VIEW w AS\nSELECT '${nothing}'",
    )
    assert [str(one) for one in found.problems] == [
        "sql/a.sql:2:10: expected TABLE, VIEW, MATERIALIZED VIEW, SOURCE, FLOW, CHANGEFEED, EVENT STORE or "
        "PROJECTION, found 'TABEL'",
        "sql/a.sql:3:1: t is defined twice",
        "sql/b.sql:2:25: unclosed string",
        "sql/c.sql:2:9: ${nothing} has no value",
    ]
    assert found.problems[1].detail == "First in sql/a.sql:1."


def test_a_statement_that_defines_nothing_is_a_problem(tmp_path: Path) -> None:
    (problem,) = definitions(tmp_path, a="CREATE TABLE t (a INT);\nINSERT INTO t VALUES (1)").problems
    assert str(problem) == "sql/a.sql:2:1: INSERT defines nothing"


def test_what_defines_but_is_no_part_of_a_project_is_not_told_that_it_defines_nothing(tmp_path: Path) -> None:
    (problem,) = definitions(tmp_path, a="DROP EVENT STORE events").problems
    assert str(problem) == "sql/a.sql:1:1: DROP EVENT STORE has no place in a project"
    assert "headrace run script.sql" in problem.hint


PROJECTION = "CREATE PROJECTION people FOR EVENT STORE events AGGREGATE TYPE 'Person' (name STRING)"


def test_an_event_store_its_types_and_its_projections_may_stand_in_any_file(tmp_path: Path) -> None:
    found = definitions(
        tmp_path,
        a=f"CREATE VIEW named AS SELECT name FROM people;\n{PROJECTION}",
        b="CREATE EVENT TYPE 'Born' FOR EVENT STORE events; CREATE EVENT TYPE 'Born' VERSION 2 FOR EVENT STORE events",
        c="CREATE EVENT STORE events WITH (data = 'map')",
    )
    assert not found.problems
    assert [one.name for one in found.all] == [
        "events",
        "Born version 1 of events",
        "Born version 2 of events",
        "people",
        "named",
    ]
    # A store of maps is read as one.
    (query,) = [one.statement.query for one in found.views if isinstance(one.statement, CreateView)][:1]
    assert "from_json" not in query


def test_a_projection_of_a_store_that_is_not_in_the_project_is_told(tmp_path: Path) -> None:
    (alone,) = definitions(tmp_path, a=PROJECTION).problems
    assert str(alone) == "sql/a.sql:1:1: there is no event store events in the project"


def test_what_stands_twice_is_told_also_of_events(tmp_path: Path) -> None:
    twice = definitions(
        tmp_path,
        a=f"CREATE EVENT STORE events; {PROJECTION}; CREATE VIEW people AS SELECT 1 AS a",
        b="CREATE EVENT STORE events; CREATE EVENT TYPE 'B' FOR EVENT STORE events",
        c="CREATE EVENT TYPE 'B' FOR EVENT STORE events",
    )
    assert [one.message for one in twice.problems] == [
        "events is defined twice",
        "B version 1 of events is defined twice",
        "people is defined twice",
    ]


@pytest.mark.parametrize(
    ("script", "tables", "followed"),
    [
        ("CREATE TABLE t (a INT)", True, False),
        ("CREATE EVENT STORE events", True, False),
        ("CREATE SOURCE s FROM KAFKA 'h:9092/p.*' WITH (format = 'debezium')", True, True),
        ("CREATE SOURCE s INTO t FROM KAFKA 'h:9092/p' WITH (format = 'raw')", False, True),
        ("CREATE SOURCE s INTO t FROM DELTA 'p'", False, True),
        ("CREATE SOURCE s INTO t FROM DELTA 'p' WITH (mode = 'snapshot')", False, False),
        ("CREATE CHANGEFEED f FOR TABLE t INTO FILES 'out'", False, True),
        ("INSERT INTO t VALUES (1)", False, False),
    ],
)
def test_a_script_tells_whether_it_makes_tables_and_needs_a_process_that_stays(
    script: str, tables: bool, followed: bool
) -> None:
    assert (makes_tables(script), script_makes_followed(script)) == (tables, followed)


def test_values_come_from_the_configuration_and_from_the_call(tmp_path: Path) -> None:
    made = project(
        tmp_path,
        "name: shop\nconfiguration: {data: here, limit: 5}",
        a="CREATE VIEW v AS SELECT '${data}' AS data, ${limit} AS n",
    )
    assert "'here' AS data, 5 AS n" in read_definitions(made).views[0].statement.sql
    other = open_project(tmp_path, {"data": "there"})
    assert "'there' AS data, 5 AS n" in read_definitions(other).views[0].statement.sql


def test_only_paths_begin_in_the_folder_of_the_project(tmp_path: Path) -> None:
    sources = {"a": "KAFKA 'host:9092/bank.*'", "b": "PYTHON 'module:tail'", "c": "FILES 'in'", "d": "DELTA 'in'"}
    found = definitions(tmp_path, all=";".join(f"CREATE SOURCE {n} INTO t FROM {w}" for n, w in sources.items()))
    places = [one.statement.location for one in found.sources if isinstance(one.statement, CreateSource)]
    assert places == ["host:9092/bank.*", "module:tail", str(tmp_path / "in"), str(tmp_path / "in")]


def test_a_new_project_can_be_read(tmp_path: Path) -> None:
    assert make_project(tmp_path / "shop") == [
        "headrace.yml",
        "sql/tables.sql",
        "sql/views.sql",
        "changes.sql",
        ".gitignore",
    ]
    made = open_project(tmp_path / "shop")
    found = read_definitions(made)
    assert (made.name, len(found.tables), len(found.views), found.problems) == ("shop", 2, 2, [])
    with pytest.raises(ProjectError, match="is there already"):
        make_project(tmp_path / "shop")
    with pytest.raises(ProjectError, match="cannot be the name"):
        make_project(tmp_path / "my shop")


def test_the_medallion_is_a_project() -> None:
    folder = Path(__file__).parents[2] / "examples" / "medallion"
    found = read_definitions(open_project(folder))
    assert (len(found.tables), len(found.views), len(found.sources), found.problems) == (7, 15, 7, [])
