"""Where a process and its Spark leave files for each other: a folder that every executor sees."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import SparkSession

from headrace.errors import SetupError
from headrace.settings import Settings
from headrace.spark.requirements import check_executors, is_local
from headrace.spark.session import large_session
from headrace.storage.objects import Location
from headrace.storage.scratch import Scratch

_FOLDER = "scratch"
# What Spark reads as a pattern for many names.
_PATTERN = frozenset("*?[]{}\\")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FILE_URL = re.compile(r"file:(?://([^/?#]*))?([^?#]*)", re.IGNORECASE | re.DOTALL)


def open_scratch(home: Location, spark: SparkSession, settings: Settings, *, sweeping: bool) -> Scratch:
    """A folder of this machine's own where executors live in the driver; elsewhere one that they are seen to share."""
    if is_local(spark):
        _refuse_pattern(Path(tempfile.gettempdir()), "let the environment variable TMPDIR name a folder without them")
        return Scratch()
    folder = folder_for(home, settings.shared_scratch)
    # Whoever names a folder that is there has made it, and gave it its rights.
    stays = settings.shared_scratch is not None and folder.exists()
    try:
        scratch = Scratch(folder, shared=True, sweeping=sweeping, parent_stays=stays)
    except OSError as error:
        raise SetupError(
            f"the folder {folder} cannot be used",
            detail=f"{error}. Executors of Spark and this process leave files for each other there.",
            hint="mend its rights, or let the setting shared_scratch name another",
        ) from error
    try:
        check_executors(large_session(spark), scratch.path, settings.spark_patience.total_seconds())
    except BaseException:
        scratch.close()
        raise
    return scratch


def folder_for(home: Location, given: str | None) -> Path:
    """The folder around what each process leaves: the one that is named, or that of the home."""
    scheme = _SCHEME.match(given or "")
    if given is not None and (scheme is None or scheme[1].lower() == "file"):
        named = given if scheme is None else _path_of(given)
        # What cannot be written down is no name that all machines agree on; NUL is none for any of them.
        if not named.startswith("/") or not named.isprintable():
            raise SetupError(
                f"shared_scratch is {given!r}, which names no folder of this machine",
                detail="It does not begin with a slash, or has signs that cannot be printed.",
                hint="write the whole path of the folder, such as /mnt/shared/scratch",
            )
        folder = Path("/", named.lstrip("/")).resolve()
    elif given is None and isinstance(home, Path):
        folder = home.resolve() / _FOLDER
    else:
        raise SetupError(
            "a Spark cluster needs a folder that its executors share with this process",
            detail=f"The home is {home}" + ("." if given is None else f", and shared_scratch is {given}."),
            hint="let the setting shared_scratch name a folder under the same path on all machines, such as one on NFS",
        )
    _refuse_pattern(folder, "let the setting shared_scratch name a folder without them")
    return folder


def _refuse_pattern(folder: Path, hint: str) -> None:
    if _PATTERN & set(str(folder)):
        raise SetupError(
            f"the folder {folder} cannot be told to Spark",
            detail=f"Spark reads each of {' '.join(sorted(_PATTERN))} as part of a pattern.",
            hint=hint,
        )


def _path_of(url: str) -> str:
    """The folder of a file: URL, whose names may be written with signs for letters that a URL has no room for."""
    # Two slashes begin the name of a machine; there may be one, or more than three.
    found = _FILE_URL.fullmatch(url)
    machine, path = (found[1] or "", found[2]) if found else ("", "")
    if found is None or machine not in ("", "localhost"):
        raise SetupError(
            f"shared_scratch is {url}, which names no folder of this machine",
            detail=f"What stands after file:// and before the next slash is a machine: {machine or 'none'}.",
            hint="write file:///folder/on/all/machines, or the folder itself",
        )
    return unquote(path)
