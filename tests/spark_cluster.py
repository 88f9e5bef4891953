"""A standalone Spark on loopback: a master and workers, started from the pyspark wheel, that share one folder with us.

Each process has temporary folders of its own. Workers, and so their executors, run as another user: what this process
keeps to itself, its temporary folder and its folder in memory, they cannot read.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.java import find_java
from headrace.storage.scratch import Scratch
from tests.ending_with_us import ending_with_us
from tests.stopped import Stopped
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OTHER_USER = "nobody"
_APPLICATIONS = 2
_REGISTERED = r"(Successfully registered) with master"
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def why_not() -> str | None:
    """Why no such cluster can be had here, if so."""
    if os.name != "posix" or os.geteuid() != 0:
        return "only root can run the workers as another user"
    try:
        pwd.getpwnam(_OTHER_USER)
    except KeyError:
        return f"there is no user {_OTHER_USER}"
    for path in (_spark_home() / "jars", find_java().executable):
        if not _other_may_read(path):
            return f"the user {_OTHER_USER} cannot read {path}"
    return None


class Cluster(Stopped):
    """The processes of one cluster, which live as long as this context; `shared` is the folder that all may use.

    Each worker has room for one executor of each of two applications: a session of the tests, and a command beside it.
    """

    def __init__(self, workers: int = 2, megabytes: int = 700) -> None:
        self._megabytes = megabytes
        self._cores = workers
        self._scratch = Scratch()
        self.folder = self._scratch.path
        self.folder.chmod(0o755)
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self.workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.master, said = self._start("master", [_MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"])
        try:
            self.url = self._told(self.master, said, r"Starting Spark master at (spark://\S+)")
            started = [self._start_worker() for _ in range(workers)]
            for process, said in started:
                self._told(process, said, _REGISTERED)
        except BaseException:
            self.stop()
            raise

    def options(self) -> dict[str, str]:
        """What a Spark needs to be told to work here."""
        return {
            "spark.executor.memory": f"{self._megabytes}m",
            "spark.cores.max": str(self._cores),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Folders that the driver makes in the shared one are for executors to write into, who are another user.
            "spark.hadoop.fs.permissions.umask-mode": "000",
        }

    def add_worker(self) -> None:
        """Start one more worker, and wait until the master knows it."""
        self._told(*self._start_worker(), _REGISTERED)

    def _start_worker(self) -> tuple[subprocess.Popen[bytes], Path]:
        name = f"worker-{self._started}"
        self._started += 1
        arguments = [_WORKER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        arguments += ["--cores", str(_APPLICATIONS), "--memory", f"{_APPLICATIONS * self._megabytes}m"]
        arguments += ["--work-dir", str(self.folder / name / "work")]
        process, said = self._start(name, [*arguments, self.url])
        self.workers.append(process)
        return process, said

    def kill_worker(self, number: int) -> None:
        """End a worker as a power cut would; its executors end with it."""
        process = self.workers[number]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def executors(self, number: int) -> list[Path]:
        """The folders of the executors that a worker has started so far."""
        return sorted((self.folder / f"worker-{number}" / "work").glob("app-*/*"))

    def stop(self) -> None:
        """End all processes; what they held is gone."""
        for process in (*self.workers, self.master):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._scratch.close()

    def _start(self, name: str, arguments: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
        """A process as the other user, in a group of its own, with folders that only it may read."""
        own = self.folder / name
        for folder in (own, own / "temporary", own / "local"):
            folder.mkdir(mode=0o700)
            shutil.chown(folder, _OTHER_USER)
        java = find_java()
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{_spark_home()}/jars/*"]
        command = ending_with_us([str(java.executable), *options, *arguments])
        said = self.folder / f"{name}.log"
        with open(said, "wb") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(own, java.home),
                cwd=own,
                user=_OTHER_USER,
                group=pwd.getpwnam(_OTHER_USER).pw_gid,
                extra_groups=[],
                start_new_session=True,
            )
        return process, said

    def _told(self, process: subprocess.Popen[bytes], said: Path, wanted: str) -> str:
        """What a process says about itself once it is ready."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = re.search(wanted, said.read_text(errors="replace"))
            if found is not None:
                return found[1]
            if process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{said.stem} did not start: {said.read_text(errors='replace')[-2000:]}")


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _environment(own: Path, java_home: Path) -> Mapping[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_WORKER_DIR": str(own / "work"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Otherwise it is looked for in folders that only a source tree has.
        "SPARK_SCALA_VERSION": "2.13",
        # Executors are started by their worker, and have its temporary folder too.
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={own / 'temporary'} -XX:+UseSerialGC",
    }


def _other_may_read(path: Path) -> bool:
    asked = subprocess.run(["test", "-r", str(path)], user=_OTHER_USER, extra_groups=[], check=False)
    return asked.returncode == 0


@contextmanager
def spark_and_folder(on_cluster: bool, prefix: str) -> Generator[tuple[SparkSession, Path], None, None]:
    """A Spark that Headrace starts, here or on a cluster of its own, and a folder for homes that it can reach."""
    from headrace.settings import Settings
    from headrace.spark.session import start_spark

    if not on_cluster:
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
            spark = start_spark(Settings())
            yield spark, Path(name)
            spark.stop()
        return
    reason = why_not()
    if reason is not None:
        raise SystemExit(reason)
    os.umask(0)
    with Cluster() as cluster:
        spark = start_spark(Settings(spark_master=cluster.url, spark_options=cluster.options()))
        yield spark, cluster.shared
        spark.stop()
