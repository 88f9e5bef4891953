"""The dashboards and alert rules of deploy/: every expression is asked of a real Prometheus that scrapes a server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from headrace.local.ports import free_port
from tests.e2e.conftest import Served
from tests.ending_with_us import ending_with_us
from tests.waiting import PATIENCE, until

DEPLOY = Path(__file__).parents[2] / "deploy"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus (apt-get install prometheus)"
)


def _expressions() -> dict[str, str]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    found = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    board = json.loads((DEPLOY / "grafana" / "headrace.json").read_text())
    for panel in board["panels"]:
        found |= {f"{panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    return found


@pytest.fixture
def prometheus(server: Served, tmp_path: Path) -> Iterator[str]:
    """A Prometheus that has scraped the server twice, after it was used."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "3s", "scrape_timeout": "3s"}
    (job,) = config["scrape_configs"]
    del job["authorization"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{server.port}"]}]
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = ["prometheus", "--config.file", str(tmp_path / "prometheus.yml"), "--storage.tsdb.path", str(tmp_path)]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            ending_with_us([*command, "--web.listen-address", f"127.0.0.1:{port}"]),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:

        def has_scraped() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
            server.push("items", '{"insert": {"id": 1, "name": "a", "price": 1}}')
            return bool(_asked(url, 'count_over_time(up{job="headrace"}[1m]) >= 3 and up == 1'))

        until(has_scraped)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _asked(url: str, expression: str) -> list[Any]:
    try:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": expression}, trust_env=False, timeout=PATIENCE)
    except httpx.HTTPError:
        return []
    if answer.status_code == 503:
        return []
    assert answer.status_code == 200, (expression, answer.text)
    return answer.json()["data"]["result"]


@needs_prometheus
def test_every_expression_is_answered(server: Served, prometheus: str) -> None:
    told = server.client.get("/metrics").text
    known = set(re.findall(r"^# TYPE (\S+)", told, re.MULTILINE))
    known |= {f"{name}{end}" for name in set(known) for end in ("_total", "_bucket", "_sum", "_count", "_info")}
    expressions = _expressions()

    def answered(name: str) -> bool:
        return bool(_asked(prometheus, expressions[name]))

    for name, expression in expressions.items():
        for figure in re.findall(r"\b(?:headrace|process)_[a-z0-9_]+", expression):
            assert figure in known, f"{name}: nobody tells {figure}"
        # Prometheus takes it, whether or not there is an answer.
        answered(name)
    # Of what every server has, there is an answer; of sources and feeds only where there are some.
    always = (
        "Time of an epoch A", "Time by stage, 95 % A", "Rows, by relation A", "State A", "Memory A", "Memory B",
        "How far views are behind A", "Requests, by status A", "Release A", "Since a relation changed A",
    )  # fmt: skip
    # A scrape that failed, as on a machine that is busy, leaves everything without an answer until the next.
    for name in always:
        until(partial(answered, name))
    # Nothing is wrong with this server, so no alert holds; how fast it is depends on the machine.
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    for name in {rule["alert"] for rule in alerts} - {"HeadraceEpochsSlow"}:
        until(lambda name=name: answered("Release A") and not answered(name))


@needs_prometheus
def test_the_rules_and_the_files_are_as_their_readers_want_them() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(DEPLOY / "prometheus" / "alerts.yml")], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    kinds = [one["kind"] for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())]
    assert kinds == ["Service", "StatefulSet"]
    ids = [panel["id"] for panel in json.loads((DEPLOY / "grafana" / "headrace.json").read_text())["panels"]]
    assert len(ids) == len(set(ids))


@needs_prometheus
def test_a_source_that_is_away_for_minutes_is_an_alert(tmp_path: Path) -> None:
    summary = "Source orders cannot be read, and is tried again: SHOW SOURCES says why."
    fires = {"exp_labels": {"source": "orders", "severity": "warning"}, "exp_annotations": {"summary": summary}}
    series = [
        {"series": 'headrace_source_failing{source="orders"}', "values": "0 0 1x10"},
        # One that is back within minutes wakes nobody.
        {"series": 'headrace_source_failing{source="others"}', "values": "0 1 1 1 0x10"},
    ]
    asked = [
        {"eval_time": "6m", "alertname": "HeadraceSourceAway"},
        {"eval_time": "8m", "alertname": "HeadraceSourceAway", "exp_alerts": [fires]},
    ]
    alerts_are(tmp_path, series, asked)


def alerts_are(folder: Path, series: list[dict[str, str]], asked: list[dict[str, Any]]) -> None:
    """Have Prometheus's own tool say that our rules fire for these series as they are asked to."""
    told = {
        "rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")],
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": asked}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(told))
    tried = subprocess.run(["promtool", "test", "rules", str(folder / "test.yml")], capture_output=True, text=True)
    assert tried.returncode == 0, tried.stdout + tried.stderr


@needs_prometheus
def test_whatever_is_found_wrong_is_one_alert(tmp_path: Path) -> None:
    found = [
        ("feed_failing", "orders", "warning"), ("keys", "access", "warning"), ("upkeep", "clock", "warning"),
        ("upkeep", "fold", "warning"), ("home", "home", "broken"), ("view_stale", "totals", "warning"),
    ]  # fmt: skip
    series = [
        {"series": f'headrace_findings{{kind="{kind}",about="{about}",level="{level}"}}', "values": "1x20"}
        for kind, about, level in found
    ]
    grave = {"warning": "warning", "broken": "critical"}
    fire = [
        {
            "exp_labels": {"kind": kind, "about": about, "level": level, "severity": grave[level]},
            "exp_annotations": {
                "summary": f"{kind} of {about} wants to be looked at: headrace status --check says why."
            },
        }
        for kind, about, level in (found[1], found[2], found[4])
    ]
    feed = {
        "exp_labels": {"kind": "feed_failing", "about": "orders", "level": "warning", "severity": "critical"},
        "exp_annotations": {"summary": "Changefeed orders has stopped with an error."},
    }
    asked = [
        {"eval_time": "5m", "alertname": "HeadraceFinding", "exp_alerts": fire},
        {"eval_time": "5m", "alertname": "HeadraceFeedFailing", "exp_alerts": [feed]},
    ]
    alerts_are(tmp_path, series, asked)
