"""`headrace run` and `headrace serve` start their Spark where --master says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.ending_with_us import ending_with_us
from tests.spark_cluster import Cluster

COMMAND = [sys.executable, "-c", "from headrace.cli.main import run; run()"]
SCRIPT = """
CREATE TABLE t (id BIGINT PRIMARY KEY, city STRING);
CREATE VIEW v AS SELECT upper(city) AS city, count(*) AS n FROM t GROUP BY upper(city);
INSERT INTO t SELECT id, concat('c', id % 10) FROM range(0, 70000);
SELECT count(*) AS cities, sum(n) AS rows FROM v
"""


def environment(cluster: Cluster, **more: str) -> dict[str, str]:
    options = {**cluster.options(), **json.loads(more.pop("options", "{}"))}
    return {**os.environ, "HEADRACE_SPARK_OPTIONS": json.dumps(options), "SPARK_LOCAL_IP": "127.0.0.1", **more}


def test_run_on_a_cluster(cluster: Cluster, home_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    said = subprocess.run(
        [*COMMAND, "run", str(tmp_path / "script.sql"), "--home", str(home_folder), "--master", cluster.url, "--json"],
        env=environment(cluster, HEADRACE_SMALL_BOUND="5000"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == [{"cities": 10, "rows": 70000}]
    assert not (home_folder / "scratch").exists()


def test_executors_that_never_come_are_told(cluster: Cluster, home_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    greedy = json.dumps({"spark.executor.memory": "20g"})
    said = subprocess.run(
        [*COMMAND, "run", str(tmp_path / "script.sql"), "--home", str(home_folder), "--master", cluster.url],
        env=environment(cluster, options=greedy, HEADRACE_SPARK_PATIENCE="PT5S"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert said.returncode == 1
    assert "no executor of Spark took up work within 5 seconds" in said.stderr
    assert "spark.executor.memory" in said.stderr


def test_serve_on_a_cluster(cluster: Cluster, home_folder: Path) -> None:
    options = ["--home", home_folder, "--master", cluster.url, "--port", "0", "--json"]
    command = ending_with_us([*COMMAND, "serve", *options])
    told = {"HEADRACE_SMALL_BOUND": "5000", "HEADRACE_SERVE_DEFINITIONS": "true"}
    with subprocess.Popen(command, env=environment(cluster, **told), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            with httpx.Client(base_url=url, timeout=120) as client:
                table, view, *_ = SCRIPT.split(";")
                for sql in (table, view):
                    assert client.post("/v1/query", json={"sql": sql}).status_code == 200
                lines = "\n".join(json.dumps({"insert": {"id": n, "city": f"c{n % 10}"}}) for n in range(8000))
                assert client.post("/v1/ingress/t?wait=true", content=lines).status_code == 200
                # By a process of its own, on this machine.
                asked = client.post("/v1/query", json={"sql": "SELECT count(*) AS n, sum(n) AS s FROM v WHERE n > 1"})
                assert asked.json()["rows"] == [{"n": 10, "s": 8000}]
        finally:
            server.terminate()
            server.wait(60)
