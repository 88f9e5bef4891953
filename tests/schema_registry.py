"""A real schema registry on loopback: Apicurio Registry, which speaks the REST API of Confluent's."""

from __future__ import annotations

import socket
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from headrace.spark.java import find_java
from tests.installed import installed
from tests.stopped import Stopped

VERSION = "3.0.9"
# 109 MB, downloaded once.
_LOCK = (
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
    f" io.apicurio:apicurio-registry-app:{VERSION}:all:tar.gz"
)
_API = "/apis/ccompat/v7"
_PATIENCE = 120.0


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")


class SchemaRegistry(Stopped):
    """The server, as a process that lives as long as this context."""

    def __init__(self) -> None:
        folder = installed(f"apicurio-registry-{VERSION}", _LOCK, _unpack)
        (jar,) = folder.glob("*-runner.jar")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._said = tempfile.NamedTemporaryFile(prefix="headrace-registry-", suffix=".log")  # noqa: SIM115 - ends with us
        self._process = subprocess.Popen(
            [
                find_java().executable,
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-Dquarkus.http.host=127.0.0.1",
                f"-Dquarkus.http.port={port}",
                "-jar",
                jar,
            ],
            stdout=self._said,
            stderr=subprocess.STDOUT,
        )
        self.url = f"http://127.0.0.1:{port}{_API}"
        self._client = httpx.Client(base_url=self.url, timeout=30)
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

    def register(self, subject: str, schema: str, references: list[dict[str, Any]] | None = None) -> int:
        """The id of a schema that is known under a subject from now on."""
        content = {"schema": schema, "schemaType": "AVRO", "references": references or []}
        answer = self._client.post(f"/subjects/{subject}/versions", json=content)
        answer.raise_for_status()
        return answer.json()["id"]

    def stop(self) -> None:
        """End the server; what it held is gone."""
        self._client.close()
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _await(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            try:
                if self._client.get("/subjects").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        said = Path(self._said.name).read_text(errors="replace")
        raise AssertionError(f"the registry did not start:\n{said[-2000:]}")
