"""A real schema registry on loopback: Apicurio Registry, which speaks the REST API of Confluent's."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import httpx

from headrace.local.ports import HOST, free_port
from headrace.local.server import Program, Server
from headrace.spark.java import find_java
from headrace.storage.scratch import Scratch
from tests.installed import installed
from tests.stopped import Stopped

VERSION = "3.0.9"
# 109 MB, downloaded once.
_LOCK = (
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
    f" io.apicurio:apicurio-registry-app:{VERSION}:all:tar.gz"
)
_API = "/apis/ccompat/v7"


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")


class SchemaRegistry(Stopped):
    """The server, as a process that ends with the context, or with this process, however that ends."""

    def __init__(self) -> None:
        folder = installed(f"apicurio-registry-{VERSION}", _LOCK, _unpack)
        (jar,) = folder.glob("*-runner.jar")
        port = free_port()
        self.url = f"http://{HOST}:{port}{_API}"
        self._client = httpx.Client(base_url=self.url, timeout=30)
        self._scratch = Scratch()
        command = [
            str(find_java().executable),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            f"-Djava.io.tmpdir={self._scratch.path}",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={port}",
            "-jar",
            str(jar),
        ]
        program = Program("the registry", self.url, port, command, self._answers)
        self._server = Server(program, self._scratch.path / "registry.log")
        try:
            self._server.start()
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
        self._server.kill()
        self._scratch.close()

    def _answers(self) -> bool:
        try:
            return self._client.get("/subjects").status_code == 200
        except httpx.HTTPError:
            return False
