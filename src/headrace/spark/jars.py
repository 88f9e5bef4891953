"""Keep the pinned jars in a folder: downloaded once, checked by sha256, offline afterwards."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from headrace.errors import SetupError
from headrace.settings import read_settings
from headrace.spark.java import find_java

_AT_ONCE = 4
_WORTH_ANOTHER = 10
# Without descriptors: the lock is the whole closure, and a parent that is nowhere must not stand in the way of a file.
_SETTINGS = (
    '<ivysettings><settings defaultResolver="central"/>'
    '<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
)


@dataclass(frozen=True)
class Jar:
    """One pinned jar, or an archive that lies beside them: its Maven coordinates and the checksum it must have."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}{self.classifier and f'-{self.classifier}'}.{self.extension}"


def read_lock() -> list[Jar]:
    """The jars of `jars.lock`, in its order."""
    return parse_lock(files("headrace.spark").joinpath("jars.lock").read_text())


def parse_lock(text: str) -> list[Jar]:
    """The jars named in the text of a lock file; blank lines and lines with # are skipped."""
    jars: list[Jar] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        sha256, coordinates = line.split()
        group, artifact, version, *attached = coordinates.split(":")
        jars.append(Jar(group, artifact, version, sha256, *attached))
    return jars


def paths(folder: Path | None = None, lock: str | None = None) -> list[Path]:
    """The pinned jars as files that are as the lock says, after downloading those that the folder does not hold yet."""
    folder = folder or read_settings().jars
    locked = read_lock() if lock is None else parse_lock(lock)
    missing = [jar for jar in locked if not (folder / jar.file_name).exists()]
    for jar in locked:
        if jar not in missing:
            _check_kept(folder / jar.file_name, jar)
    if missing:
        _download(missing, folder)
    return [folder / jar.file_name for jar in locked]


def _check_kept(file: Path, jar: Jar) -> None:
    # A tenth of a second for all of them; a damaged jar would be told, much later, as a class that cannot be found.
    found = _sha256(file)
    if found != jar.sha256:
        raise SetupError(
            f"jar {jar.artifact} {jar.version} was damaged after it was downloaded",
            detail=f"The sha256 of {file} is {found}, the lock names {jar.sha256}.",
            hint=f"remove it, and it is downloaded again: rm '{file}'",
        )


def _sha256(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _download(jars: Sequence[Jar], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # Drafts lie beside their final place: the move is atomic, and a broken download leaves nothing behind.
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as name:
        draft = Path(name)
        _run_ivy(jars, draft)
        for jar in jars:
            _check(draft / jar.file_name, jar)
        for jar in jars:
            os.replace(draft / jar.file_name, folder / jar.file_name)


def _check(file: Path, jar: Jar) -> None:
    if not file.exists():
        raise SetupError(f"jar {jar.artifact} was not delivered", hint="run it again when the network is up")
    found = _sha256(file)
    if found != jar.sha256:
        raise SetupError(
            f"jar {jar.artifact} {jar.version} is not the pinned one",
            detail=f"Its sha256 is {found}, the lock names {jar.sha256}. It was not kept.",
            hint="check what stands between this machine and Maven Central",
        )


def _run_ivy(jars: Sequence[Jar], draft: Path) -> None:
    # Ivy is part of Spark and knows Maven Central by itself: no further tool is needed. It asks for one file after the
    # other, so that a long list is shared among several of them.
    count = min(_AT_ONCE, 1 + len(jars) // _WORTH_ANOTHER)
    shares = [jars[number::count] for number in range(count)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, ThreadPoolExecutor(len(shares)) as threads:
        task = progress.add_task("Fetching jars", total=len(jars))
        for done in [
            threads.submit(_run_one_ivy, share, draft, draft / f"ivy-{number}", progress, task)
            for number, share in enumerate(shares)
        ]:
            done.result()
        progress.update(task, description="Jars fetched and checked", completed=len(jars))


def _run_one_ivy(jars: Sequence[Jar], draft: Path, folder: Path, progress: Progress, task: TaskID) -> None:
    folder.mkdir()
    module, settings = folder / "ivy.xml", folder / "settings.xml"
    module.write_text(_ivy_module(jars))
    settings.write_text(_SETTINGS)
    command: list[str | Path] = [find_java().executable, "-jar", _ivy_jar(), "-settings", settings]
    command += ["-cache", folder / "cache", "-ivy", module]
    command += ["-retrieve", f"{draft}/[artifact]-[revision](-[classifier]).[ext]"]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        for line in ivy.stdout or ():
            said.append(line.rstrip())
            begun = re.search(r"^downloading .*/([^/]+\.(?:jar|tar\.gz))", line)
            if begun:
                progress.update(task, description=f"Fetching {begun[1]}")
            if "[SUCCESSFUL ]" in line and (".jar" in line or ".tar.gz" in line):
                progress.advance(task)
    if ivy.returncode:
        raise SetupError(
            "the jars could not be downloaded",
            detail="\n".join(line for line in said if line.strip(". \t"))[-2000:],
            hint="check the network, then run it again; it is needed only this once",
        )


def _ivy_module(jars: Sequence[Jar]) -> str:
    # The lock is the whole closure: nothing transitive, so no jar comes in that it does not name.
    wanted = "\n".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        f' transitive="false" conf="default->default"{_attached(jar)}'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="headrace" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _attached(jar: Jar) -> str:
    """The rest of a dependency: with a classifier, that file alone."""
    if not jar.classifier:
        return "/>"
    wanted = f"name={quoteattr(jar.artifact)} m:classifier={quoteattr(jar.classifier)}"
    kind = quoteattr(jar.extension)
    return f"><artifact {wanted} type={kind} ext={kind}/></dependency>"


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise SetupError("pyspark brings no Ivy jar", hint="install pyspark from PyPI: pip install headrace")
    return found[-1]
