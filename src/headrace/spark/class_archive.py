"""An archive of the classes that Spark loads: a JVM maps it, instead of reading and checking them one by one.

One is made for each Java and set of jars (make_class_archive.py) and kept beside the jars. Where there is none, Spark
starts without it; one that does not fit is passed over by Java.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home  # pyright: ignore[reportPrivateUsage]

from headrace.errors import SetupError
from headrace.settings import Settings
from headrace.spark import jars
from headrace.spark.java import find_java
from headrace.spark.options import quoted

# Java tells of every class that it leaves out, and of an archive that does not fit, which is no fault.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_SUFFIX = ".jsa"
_DRAFTS = "making-"
# An archive takes 200 MB; one of a Java or a Spark that is used no more need not stay.
_UNUSED_SECONDS = 30 * 24 * 3600.0


def archive_of(settings: Settings) -> Path:
    """Where the archive is, or would be: another Java, or another jar, has another."""
    java = find_java().home
    own = sorted((Path(_find_spark_home()) / "jars").glob("*.jar"))
    known_by = [java / "release", java / "lib" / "modules", *own, *jars.paths(settings.jars)]
    name = hashlib.sha256("\n".join(map(_told, known_by)).encode()).hexdigest()[:16]
    return settings.jars.parent / "classes" / f"{name}{_SUFFIX}"


def _told(file: Path) -> str:
    """What makes a file another one; Java too takes a jar for another by its size and time."""
    try:
        found = file.stat()
    except OSError:
        return f"{file} -"
    return f"{file} {found.st_size} {found.st_mtime_ns}"


def options_to_use(archive: Path) -> str:
    """What tells Java to use an archive."""
    # So that it is seen to be in use; one that is not ours to touch is used all the same.
    with suppress(OSError):
        os.utime(archive)
    return f"-XX:SharedArchiveFile={quoted(archive)} -Xshare:auto {_QUIET}"


def options_to_make(archive: Path) -> str:
    """What tells Java to make an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={quoted(archive)} {_QUIET}"


@contextmanager
def drafted(archive: Path) -> Generator[Path | None, None, None]:
    """Where to make an archive, which is there whole afterwards, or not at all.

    None if it is there already, or if another process is making one in its folder.
    """
    folder = archive.parent
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "making.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        _sweep(folder)
        if archive.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=folder, prefix=_DRAFTS) as name:
            draft = Path(name) / archive.name
            yield draft
            if not draft.exists():
                raise SetupError("Java has made no archive of its classes", detail=f"{draft} is not there.")
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, archive)


def _sweep(folder: Path) -> None:
    """Remove what killed makers have left behind, and archives that nobody has used for long."""
    for left in folder.glob(f"{_DRAFTS}*"):
        shutil.rmtree(left, ignore_errors=True)
    for archive in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if time.time() - archive.stat().st_mtime > _UNUSED_SECONDS:
                archive.unlink()
