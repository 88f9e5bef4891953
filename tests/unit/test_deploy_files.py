"""The manifest of Kubernetes: what makes a first start, an update and a restart possible, and its probe, run."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI

from headrace.local.ports import free_port
from headrace.serving import health
from headrace.settings import Settings
from tests.servers import listening

DEPLOY = Path(__file__).parents[2] / "deploy"


def _pods() -> dict[str, Any]:
    service, pods = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    assert (service["kind"], pods["kind"]) == ("Service", "StatefulSet")
    assert pods["spec"]["serviceName"] == service["metadata"]["name"]
    assert pods["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    return pods["spec"]


def _container() -> dict[str, Any]:
    (container,) = _pods()["template"]["spec"]["containers"]
    return container


def _probed(port: int, seconds: float = 90) -> int:
    """The code that the liveness probe ends with, for a server on this port."""
    (_, flag, script) = _container()["livenessProbe"]["exec"]["command"]
    assert "8080" in script
    script = script.replace("8080", str(port)).replace("timeout=10", f"timeout={seconds}")
    return subprocess.run([sys.executable, flag, script], capture_output=True, timeout=300).returncode


def test_no_pod_waits_for_one_that_stands_by_to_be_ready() -> None:
    pods = _pods()
    # The one that stands by is never ready: ordered starts and rolling updates would wait for it for ever.
    assert pods["podManagementPolicy"] == "Parallel"
    assert pods["updateStrategy"] == {"type": "OnDelete"}
    assert pods["replicas"] == 2
    arguments = _container()["args"]
    assert arguments[:2] == ["serve", "--standby"]
    # Named, so that whoever comes first makes it.
    assert "--home" in arguments


def test_the_figures_of_the_probes_leave_time_to_end() -> None:
    live, ready = _container()["livenessProbe"], _container()["readinessProbe"]
    assert ready["httpGet"] == {"path": "/readyz", "port": "http"}
    # An owner that is taken for dead is replaced later than one that is silent would be.
    assert live["timeoutSeconds"] < live["periodSeconds"]
    assert live["periodSeconds"] * live["failureThreshold"] > Settings().owner_timeout.total_seconds()
    # Requests under way are given a minute, and the home is closed after them.
    assert _pods()["template"]["spec"]["terminationGracePeriodSeconds"] > 60


def test_the_probe_lets_live_who_stands_by_or_answers_and_nobody_who_listens_and_does_not() -> None:
    assert _probed(free_port()) == 0
    app = FastAPI()
    app.include_router(health.router)
    app.state.service = type("", (), {"settings": Settings(), "end": staticmethod(lambda: None)})()
    with listening(app) as (_, port):
        assert _probed(port) == 0
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert _probed(deaf.getsockname()[1], 0.5) != 0
