"""Where a process and its Spark leave files for each other: a folder that every executor sees."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

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


def open_scratch(home: Location, spark: SparkSession, settings: Settings, *, sweeping: bool) -> Scratch:
    """A folder of this machine's own where executors live in the driver; elsewhere one that they are seen to share."""
    if is_local(spark):
        return Scratch()
    folder = folder_for(home, settings.shared_scratch)
    try:
        scratch = Scratch(folder, shared=True, sweeping=sweeping)
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
    scheme, found, _ = (given or "").partition("://")
    if given is not None and (not found or scheme == "file"):
        folder = (_path_of(given) if found else Path(given)).resolve()
    elif given is None and isinstance(home, Path):
        folder = home.resolve() / _FOLDER
    else:
        raise SetupError(
            "a Spark cluster needs a folder that its executors share with this process",
            detail=f"The home is {home}" + ("." if given is None else f", and shared_scratch is {given}."),
            hint="let the setting shared_scratch name a folder under the same path on all machines, such as one on NFS",
        )
    if _PATTERN & set(str(folder)):
        raise SetupError(
            f"the folder {folder} cannot be told to Spark",
            detail=f"Spark reads each of {' '.join(sorted(_PATTERN))} as part of a pattern.",
            hint="let the setting shared_scratch name a folder without them",
        )
    return folder


def _path_of(url: str) -> Path:
    """The folder of a file: URL, whose names may be written with signs for letters that a URL has no room for."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise SetupError(
            f"shared_scratch is {url}, which names no folder of this machine",
            detail=f"What stands after file:// and before the next slash is a machine: {parts.netloc or 'none'}.",
            hint="write file:///folder/on/all/machines, or the folder itself",
        )
    return Path(unquote(parts.path))
