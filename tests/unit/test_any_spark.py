"""What is refused before any work is given to a Spark, and the folder that driver and executors share."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace import home
from headrace.cli.homes import ChosenHome, with_master
from headrace.errors import SetupError
from headrace.reading.files import Files
from headrace.settings import Settings, read_settings
from headrace.spark import session as spark_session
from headrace.spark import shared_scratch
from headrace.spark.causes import last_cause
from headrace.spark.options import DELTA_EXTENSION, options_of
from headrace.spark.requirements import check_catalog, check_delta, check_executors, check_session, has_executors
from headrace.spark.shared_scratch import folder_for, open_scratch
from headrace.storage import scratch
from headrace.storage.objects import location_of
from headrace.storage.scratch import Scratch
from headrace.upkeep import executors
from headrace.upkeep.executors import ExecutorWatch
from tests.waiting import until


class StandIn(SparkSession):
    """As much of a session as is looked at."""

    def __init__(self, version: str = pyspark.__version__, stopped: bool = False, language: str = "en") -> None:
        self._version = version
        java_context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))
        locale = SimpleNamespace(getDefault=lambda: SimpleNamespace(getLanguage=lambda: language))
        util = SimpleNamespace(Locale=locale)
        self._context: Any = SimpleNamespace(_jsc=java_context, _jvm=SimpleNamespace(java=SimpleNamespace(util=util)))

    @property
    def version(self) -> str:
        return self._version

    @property
    def sparkContext(self) -> Any:
        return self._context


class Ended(StandIn):
    """A session whose JVM is gone."""

    @property
    def sparkContext(self) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


Connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


def test_a_session_that_can_work_is_taken() -> None:
    check_session(StandIn())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Connected(), "Spark Connect"),
        ("local", "a str is no Spark session"),
        (SimpleNamespace(_jsparkSession=None), "a SimpleNamespace is no Spark session"),
        (Ended(), "has ended"),
        (StandIn(stopped=True), "is stopped"),
        (StandIn("4.1.3"), r"Spark 4\.1\.3 cannot be used"),
        (StandIn("4.20.0"), r"Spark 4\.20\.0 cannot be used"),
        (StandIn(language="el"), r"upper\(\) and lower\(\) another meaning"),
        (StandIn(language="tr"), r"upper\(\) and lower\(\) another meaning"),
    ],
)
def test_a_session_that_cannot_work_is_refused(given: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told) as refused:
        check_session(given)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("upper", "refused"), [("SSIΆԵՒ", nullcontext()), ("SSİΆԵՒ", pytest.raises(SetupError, match="executors of Spark"))]
)
def test_executors_that_know_other_letters_are_refused(tmp_path: Path, upper: str, refused: Any) -> None:
    def write(path: str) -> None:
        folder = Path(path.removeprefix("file://"))
        folder.mkdir()
        rows = [{"id": one, "c0": f"{upper}{one}", "c1": f"i\u0307iì{one}"} for one in range(64)]
        pq.write_table(pa.Table.from_pylist(rows), folder / "part.parquet")

    frame = SimpleNamespace(write=SimpleNamespace(parquet=write), selectExpr=lambda *_: frame)
    read = SimpleNamespace(parquet=lambda _: SimpleNamespace(count=lambda: 64))
    with refused:
        check_executors(cluster(1, range=lambda *_: frame, read=read), tmp_path, 5)
    assert not list(tmp_path.iterdir())


def test_a_catalog_that_cannot_be_loaded_is_told_with_its_setting() -> None:
    def load() -> None:
        raise PySparkException("Cannot find catalog plugin class: no.such.Catalog.")

    manager = SimpleNamespace(v2SessionCatalog=load)
    java = SimpleNamespace(sessionState=lambda: SimpleNamespace(catalogManager=lambda: manager))
    given: Any = SimpleNamespace(_jsparkSession=java)
    with pytest.raises(SetupError, match=r"spark\.sql\.catalog\.spark_catalog") as refused:
        check_catalog(given)
    assert refused.value.detail == "Cannot find catalog plugin class: no.such.Catalog."


@pytest.mark.parametrize(
    ("named", "loadable", "told"),
    [(DELTA_EXTENSION, True, None), (DELTA_EXTENSION, False, "in none of its jars"), ("", True, "do not name")],
)
def test_delta_is_there_if_its_class_is(named: str, loadable: bool, told: str | None) -> None:
    utils = SimpleNamespace(classIsLoadable=lambda _: loadable)
    spark = SimpleNamespace(util=SimpleNamespace(Utils=utils))
    java = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))
    given: Any = SimpleNamespace(conf={"spark.sql.extensions": named}, _jvm=java)
    with nullcontext() if told is None else pytest.raises(SetupError, match=told):
        check_delta(given)


def test_a_spark_of_our_own_has_the_letters_of_english(tmp_path: Path) -> None:
    with options_of(Settings(spark_options={"spark.driver.extraJavaOptions": "-Xss4m"}), "", {}, tmp_path) as options:
        for whose in ("driver", "executor"):
            assert options[f"spark.{whose}.defaultJavaOptions"] == "-Duser.language=en -Duser.country=US"


def test_options_of_java_are_added_to_ours(tmp_path: Path) -> None:
    given = {
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.driver.defaultJavaOptions": "-Da=b",
        "spark.executor.defaultJavaOptions": "-Dc=d",
        "spark.executor.extraJavaOptions": "-Xss8m",
    }
    with options_of(Settings(spark_options=given), "-XX:Ours=1", {}, tmp_path) as options:
        driver = options["spark.driver.extraJavaOptions"].split()
        assert {"-XX:+UseParallelGC", "-XX:+ExitOnOutOfMemoryError", "-XX:Ours=1"} < set(driver)
        # Java takes the last of two that say different things.
        assert driver[-1] == "-Xss4m"
        assert options["spark.driver.defaultJavaOptions"] == "-Duser.language=en -Duser.country=US -Da=b"
        assert options["spark.executor.defaultJavaOptions"] == "-Duser.language=en -Duser.country=US -Dc=d"
        assert options["spark.executor.extraJavaOptions"] == "-Xss8m"


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"])
def test_a_collector_that_is_given_is_the_only_one(tmp_path: Path, name: str) -> None:
    """A JVM that is told of two does not start."""
    with options_of(Settings(spark_options={name: "-Xss4m -XX:+UseG1GC"}), "", {}, tmp_path) as options:
        assert "UseParallelGC" not in options["spark.driver.extraJavaOptions"]
        assert "-XX:+ExitOnOutOfMemoryError" in options["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("master", [None, "spark://head:7077"])
@pytest.mark.parametrize("name", ["a b", "a'b", 'a "b" c'])
def test_a_temporary_folder_is_quoted_for_java(tmp_path: Path, name: str, master: str | None) -> None:
    with options_of(Settings(spark_master=master), "", {}, tmp_path / name) as options:
        # Spark takes such options apart as a shell does.
        assert f"-Djava.io.tmpdir={tmp_path / name}" in shlex.split(options["spark.driver.extraJavaOptions"])


@pytest.mark.parametrize("master", [None, "spark://head:7077"])
def test_a_temporary_folder_that_spark_would_take_for_two_is_refused_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str | None
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark is started")

    (tmp_path / "x,y").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "x,y"))
    monkeypatch.setattr(spark_session, "launched", start)
    monkeypatch.setattr(spark_session, "is_given", lambda: False)
    monkeypatch.setattr(spark_session, "find_java", start)
    with pytest.raises(SetupError, match="x,y cannot be told to Spark") as refused:
        spark_session._begun(Settings(spark_master=master), "", {})
    assert "comma" in refused.value.detail
    assert "TMPDIR" in refused.value.hint
    assert list((tmp_path / "x,y").iterdir()) == []


def test_two_masters_are_refused_and_both_are_named() -> None:
    chosen = ChosenHome("home", Settings(spark_options={"spark.master": "local[1]"}), named=True)
    with pytest.raises(SetupError) as refused:
        with_master(chosen, "spark://head:7077")
    assert "spark.master is local[1]" in refused.value.detail
    assert "--master gives too, is spark://head:7077" in refused.value.detail
    agreed = with_master(chosen, "local[1]").settings
    assert agreed is not None
    assert agreed.spark_master == "local[1]"


def test_the_shared_folder_is_that_of_the_home_unless_another_is_named(tmp_path: Path) -> None:
    assert folder_for(tmp_path / "home", None) == tmp_path / "home" / "scratch"
    assert folder_for(tmp_path / "home", str(tmp_path / "other")) == tmp_path / "other"
    assert folder_for(tmp_path / "home", (tmp_path / "other").as_uri()) == tmp_path / "other"
    assert folder_for(tmp_path / "home", (tmp_path / "an other").as_uri()) == tmp_path / "an other"


@pytest.mark.parametrize("url", ["file:{}", "file://{}", "FILE://{}", "file:///{}", "file://localhost{}"])
def test_a_file_url_may_have_any_number_of_slashes(tmp_path: Path, url: str) -> None:
    assert folder_for(tmp_path / "home", url.format(tmp_path / "other")) == tmp_path / "other"


@pytest.mark.parametrize(
    "given", ["", "~/x", "x", "file:", "file://", "file:x", "/x\0y", "file:///x%00y", "file:///x\ny", "hdfs:/x", "s3:x"]
)
def test_what_is_no_whole_path_is_refused_as_a_shared_folder(tmp_path: Path, given: str) -> None:
    with pytest.raises(SetupError, match=r"names no folder of this machine|needs a folder") as refused:
        folder_for(tmp_path / "home", given)
    assert refused.value.hint


def test_a_folder_for_what_is_temporary_is_none_that_spark_would_read_as_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t[x]").mkdir()
    monkeypatch.setattr(shared_scratch, "is_local", lambda _: True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t[x]"))
    spark: Any = None
    with pytest.raises(SetupError, match="cannot be told to Spark") as refused:
        open_scratch(tmp_path, spark, Settings(), sweeping=True)
    assert "TMPDIR" in str(refused.value.hint)
    assert list((tmp_path / "t[x]").iterdir()) == []


def test_a_home_in_an_object_store_needs_a_shared_folder(tmp_path: Path) -> None:
    home = location_of("s3://bucket/home", {"region": "nowhere"})
    with pytest.raises(SetupError, match="needs a folder that its executors share") as refused:
        folder_for(home, None)
    assert "shared_scratch" in str(refused.value)
    assert folder_for(home, str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["a*b", "a[b", "a{b}", "a?"])
def test_a_folder_that_spark_would_read_as_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match="cannot be told to Spark"):
        folder_for(tmp_path / name, None)


def test_a_shared_folder_goes_with_the_last_who_uses_it(tmp_path: Path) -> None:
    shared = tmp_path / "scratch"
    one, other = Scratch(shared, shared=True), Scratch(shared, shared=True, sweeping=False)
    one.close()
    assert list(shared.iterdir()) == [other.path]
    other.close()
    assert not shared.exists()


@pytest.mark.parametrize(
    ("around", "inside", "files"),
    [(0o755, 0o755, 0o644), (0o2770, 0o2750, 0o640), (0o1777, 0o755, 0o644), (0o700, 0o700, 0o600)],
)
@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_who_may_read_the_shared_folder_may_read_what_is_left_there(
    tmp_path: Path, around: int, inside: int, files: int, umask: int
) -> None:
    """Whatever the umask is, which is that of the whole home."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(around)
    before = os.umask(umask)
    try:
        shared = Scratch(tmp_path / "shared", shared=True)
        written = Files(shared.path).write(pa.table({"c0": [1]}))
        assert shared.path.stat().st_mode & 0o7777 == inside
        assert written.path.stat().st_mode & 0o7777 == files
        shutil.rmtree(shared.path)
        Files(shared.path).write(pa.table({"c0": [1]}))
        assert shared.path.stat().st_mode & 0o7777 == inside
        shared.close()
    finally:
        os.umask(before)


def test_a_shared_folder_that_is_to_stay_does(tmp_path: Path) -> None:
    Scratch(tmp_path / "named", shared=True, parent_stays=True).close()
    assert list(tmp_path.rglob("*")) == [tmp_path / "named"]


@pytest.mark.parametrize(
    ("named", "was_there", "stays"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_folder_that_shared_scratch_names_stays_when_the_home_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool, was_there: bool, stays: bool
) -> None:
    folder = tmp_path / "home" / "scratch"
    (folder if was_there else folder.parent).mkdir(parents=True)
    monkeypatch.setattr(shared_scratch, "is_local", lambda _: False)
    monkeypatch.setattr(shared_scratch, "large_session", lambda _: None)
    monkeypatch.setattr(shared_scratch, "check_executors", lambda *_: None)
    settings = Settings(shared_scratch=str(folder) if named else None)
    spark: Any = None
    opened = open_scratch(tmp_path / "home", spark, settings, sweeping=True)
    assert opened.path.parent == folder
    opened.close()
    assert folder.exists() is stays


def test_only_what_nobody_holds_is_swept(tmp_path: Path) -> None:
    held = Scratch(tmp_path, shared=True)
    left = tmp_path / "headrace-left"
    left.mkdir()
    with open(left / "in-use", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Scratch(tmp_path, shared=True).close()
        assert left.exists()
    Scratch(tmp_path, shared=True).close()
    assert not left.exists()
    assert held.path.exists()
    held.close()


def test_what_was_left_is_swept_on_a_network_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """flock(2): over NFS, who asks for an exclusive lock must have opened the file for writing."""
    lock = fcntl.flock

    def as_over_nfs(file: Any, how: int) -> None:
        if how & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(file, how)

    left = tmp_path / "headrace-left"
    left.mkdir()
    (left / "in-use").touch()
    monkeypatch.setattr(fcntl, "flock", as_over_nfs)
    Scratch(tmp_path, shared=True).close()
    assert not left.exists()


def test_a_shared_folder_may_go_while_another_begins_to_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "scratch"
    other = Scratch(shared, shared=True)
    monkeypatch.setattr(scratch, "sweep", lambda _: other.close())
    one = Scratch(shared, shared=True)
    assert one.path.exists()
    one.close()


def test_the_master_that_is_given_goes_before_that_of_the_project() -> None:
    chosen = ChosenHome("home", Settings(spark_master="yarn", small_bound=7), named=True)
    assert with_master(chosen, None) is chosen
    other = with_master(chosen, "spark://head:7077").settings
    assert other is not None
    assert (other.spark_master, other.small_bound) == ("spark://head:7077", 7)


def test_a_master_that_spark_does_not_know_is_refused() -> None:
    with pytest.raises(SetupError, match="spark_master"):
        with_master(ChosenHome("home", None, named=False), "head:7077")


@pytest.mark.parametrize(
    "master", ["local[x]", "local[]", "local[0]", "local[2,]", "local[2,x]", "local-cluster[1,1,1]"]
)
def test_a_local_master_is_as_spark_takes_it(master: str) -> None:
    with pytest.raises(SetupError, match="spark_master") as refused:
        read_settings(spark_master=master)
    assert not refused.value.detail.endswith("..")


@pytest.mark.parametrize(
    "master",
    ["local", "local[3]", "local[*]", "local[3,2]", "local[*, 2]", "spark://a:1,b:2", "yarn", "k8s://https://a"],
)
def test_masters_that_spark_knows_are_taken(master: str) -> None:
    assert read_settings(spark_master=master).spark_master == master


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("An error occurred while calling None.X.\n: java.lang.Error: no way.\n\tat a.b", "java.lang.Error: no way."),
        ("An error\nCaused by: one\n\tat a.b\nCaused by: two\n", "two"),
        ("", ""),
    ],
)
def test_the_last_cause_is_told(text: str, cause: str) -> None:
    assert last_cause(Exception(text)) == cause


def test_a_cause_that_went_with_the_jvm_is_no_other_error() -> None:
    class Gone(Exception):
        def __str__(self) -> str:
            raise Py4JError("no connection")

    assert "ended" in last_cause(Gone())


def test_a_spark_that_cannot_be_started_is_told_with_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise PySparkException("the master is away..")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(SetupError, match="no Spark could be started at spark://head:7077") as refused:
        spark_session._context({"spark.master": "spark://head:7077"})
    assert refused.value.detail == "the master is away."
    assert refused.value.hint


@pytest.mark.parametrize(
    ("settings", "local"),
    [
        (Settings(), True),
        (Settings(spark_master="local[3]"), True),
        (Settings(spark_options={"spark.master": "local[3]"}), True),
        (Settings(spark_master="spark://head:7077"), False),
        (Settings(spark_options={"spark.master": "spark://head:7077"}), False),
        (Settings(spark_options={"spark.master": "local-cluster[2,1,1024]"}), False),
    ],
)
def test_executors_elsewhere_are_told_nothing_that_is_meant_for_one_in_the_driver(
    tmp_path: Path, settings: Settings, local: bool
) -> None:
    with options_of(settings, "", {}, tmp_path) as options:
        # By such a heartbeat an executor that is lost would be missed an hour later.
        of_local = {"spark.executor.heartbeatInterval", "spark.driver.host", "spark.local.dir"}
        assert of_local & set(options) == (of_local if local else set())


def cluster(executors: int, **offered: Any) -> Any:
    """As much of a session of a cluster as is asked whether it has executors."""
    # The driver counts as one.
    status = SimpleNamespace(size=lambda: executors + 1)
    java_context = SimpleNamespace(isStopped=lambda: False, getExecutorMemoryStatus=lambda: status)
    context = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: java_context),
        defaultParallelism=2,
        master="spark://head:7077",
        statusTracker=lambda: SimpleNamespace(getActiveJobsIds=lambda: [7]),
    )
    return SimpleNamespace(sparkContext=context, **offered)


def test_who_waits_for_executors_is_told_also_if_a_job_begins_after_the_time_is_over(tmp_path: Path) -> None:
    given_up, begun, interrupted = threading.Event(), threading.Event(), threading.Event()

    def write(_: str) -> None:
        # Planned for longer than the patience lasts; what is interrupted before is no job yet.
        assert given_up.wait(90)
        begun.set()
        assert interrupted.wait(90), "it waits for ever"
        raise Py4JError("cancelled")

    def interrupt() -> None:
        given_up.set()
        if begun.is_set():
            interrupted.set()

    frame = SimpleNamespace(write=SimpleNamespace(parquet=write), selectExpr=lambda *_: frame)
    spark = cluster(0, range=lambda *_: frame, interruptAll=interrupt)
    with pytest.raises(SetupError, match="no executor of Spark took up work"):
        check_executors(spark, tmp_path, 0.1)


def test_executors_that_are_there_may_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []

    def look(spark: Any) -> bool:
        looked.append(has_executors(spark))
        return looked[-1]

    def write(_: str) -> None:
        # The second look shows that the first did not interrupt.
        until(lambda: len(looked) > 1)
        raise Py4JError("Permission denied")

    monkeypatch.setattr("headrace.spark.requirements.has_executors", look)
    interrupted: list[None] = []
    frame = SimpleNamespace(write=SimpleNamespace(parquet=write), selectExpr=lambda *_: frame)
    spark = cluster(1, range=lambda *_: frame, interruptAll=lambda: interrupted.append(None))
    with pytest.raises(SetupError, match="do not share the folder"):
        check_executors(spark, tmp_path, 0.1)
    assert not interrupted


def test_executors_are_watched_also_after_a_spark_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_LOOK_SECONDS", 0.01)
    interrupted = threading.Event()
    forgotten: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    waiting = cluster(0, interruptAll=interrupted.set)
    looked: list[Any] = []

    def sessions() -> list[Any]:
        looked.append(None)
        if len(looked) == 2:
            raise RuntimeError("unforeseen")
        return [forgotten if len(looked) < 5 else waiting]

    watch = ExecutorWatch(sessions, 0.05, lambda: None)
    try:
        assert interrupted.wait(90)
    finally:
        watch.close()


@pytest.mark.parametrize("url", ["file://elsewhere/scratch", "file:///scratch?a=1", "file:///scratch#a"])
def test_a_shared_scratch_is_a_folder_of_this_machine(tmp_path: Path, url: str) -> None:
    with pytest.raises(SetupError, match="names no folder of this machine"):
        folder_for(tmp_path / "home", url)


def test_nothing_is_left_where_sessions_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Left:
        def __init__(self, name: str = "leaves", *_: object, **__: object) -> None:
            self.path, self._name = tmp_path, name

        def close(self) -> None:
            closed.append(self._name)

    def fail(*_: object) -> None:
        raise SetupError("no sessions")

    monkeypatch.setattr(home, "Scratch", lambda *_: Left("leaves"))
    monkeypatch.setattr(home, "open_scratch", lambda *_, **__: Left("disk"))
    monkeypatch.setattr(home, "open_sessions", fail)
    with pytest.raises(SetupError, match="no sessions"):
        home.Home(tmp_path, None, Settings(), None)  # type: ignore[arg-type]
    assert closed == ["disk", "leaves"]
