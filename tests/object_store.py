"""A real server that speaks S3, on loopback, with a bucket of its own: S3Proxy over a folder that goes with it."""

from __future__ import annotations

import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

from headrace.spark.jars import paths
from headrace.spark.java import find_java
from headrace.spark.jvm import Guard, end
from headrace.storage.objects import Bucket, ObjectPath
from headrace.storage.scratch import Scratch
from tests.stopped import Stopped
from tests.waiting import PATIENCE

BUCKET = "homes"
_LOCK = Path(__file__).with_name("jars.lock")


class ObjectStore(Stopped):
    """The server, as a process that ends with the context, or with this process, however that ends."""

    def __init__(self, authorization: str = "aws-v2-or-v4") -> None:
        (jar,) = paths(lock=_LOCK.read_text())
        self._scratch = Scratch()
        self.data = self._scratch.path / "data"
        self.data.mkdir()
        settings = self._scratch.path / "s3proxy.conf"
        settings.write_text(
            f"s3proxy.authorization={authorization}\n"
            "s3proxy.identity=headrace\n"
            "s3proxy.credential=only for tests\n"
            "s3proxy.endpoint=http://127.0.0.1:0\n"
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={self.data}\n"
        )
        self._said = self._scratch.path / "said"
        java = [str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        self._guard = Guard("KILL")
        with open(self._said, "wb") as said:
            self._process = self._guard.start(
                [*java, "-jar", str(jar), "--properties", str(settings)], os.environ, output=said
            )
        try:
            self.endpoint = f"http://127.0.0.1:{self._port()}"
        except BaseException:
            self.stop()
            raise
        (self.data / BUCKET).mkdir()

    @property
    def options(self) -> dict[str, str]:
        """How it is reached."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": "headrace",
            "aws_secret_access_key": "only for tests",
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def uri(self, name: str) -> str:
        """The URI of a home in it."""
        return f"s3://{BUCKET}/{name}"

    def location(self, name: str) -> ObjectPath:
        """A home in it, over a connection of its own."""
        return ObjectPath(Bucket(self.uri(name), self.options))

    def stop(self) -> None:
        """End the server; what it held is gone."""
        end(self._process)
        self._guard.close()
        self._scratch.close()

    def _port(self) -> int:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            started = re.search(r"ServerConnector.*\{127\.0\.0\.1:(\d+)\}", self._said.read_text(errors="replace"))
            if started and self._answers(int(started[1])):
                return int(started[1])
            time.sleep(0.05)
        raise AssertionError(f"the object store did not start:\n{self._said.read_text(errors='replace')[-2000:]}")

    def _answers(self, port: int) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True
