"""Backup: a copy of one epoch, made while epochs go on, and brought up elsewhere.

Data files carry the SHA-256 of their content in their names, so that a copy is checked while it is made. Logs are not
copied but begun anew: one commit each, which names just the copied files. The manifest comes last; a folder without it
is no backup.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from headrace.errors import LedgerError
from headrace.ledger.base import Base
from headrace.ledger.durable import Progress, copy_file, digest_of, is_whole, no_progress, remove_folder, replace_file
from headrace.ledger.ledger import RESTORING, Head, Ledger, now_utc
from headrace.ledger.readers import READERS
from headrace.storage.folders import make_folder, sync_folder
from headrace.storage.objects import Location, name_below, size_of

MANIFEST = "backup.json"
# What tells the changefeeds of a home from those of its copies.
HOME_ID = "feeds/home_id"
# Of a restored home: which restore made it, and the epoch of the backup.
_RESTORED = "feeds/restored.json"
_FORMAT = 1
_ROOM_FOR_LOGS = 1024 * 1024
# From the heads of a ledger to the head of the epoch that a restored home begins with; no epoch if it is empty.
NextHead = Callable[[Sequence[Head]], Mapping[str, Any]]


@dataclass(frozen=True)
class Copied:
    """A file of a backup."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup holds, and of which epoch."""

    epoch: int
    oldest_epoch: int
    backed_up_at: str
    files: Mapping[str, Copied]

    @property
    def size(self) -> int:
        """The bytes of all of its files."""
        return sum(one.size for one in self.files.values())

    def summary(self) -> dict[str, Any]:
        """What a user wants to know of it."""
        return {
            "epoch": self.epoch,
            "oldest_epoch": self.oldest_epoch,
            "backed_up_at": self.backed_up_at,
            "files": len(self.files),
            "bytes": self.size,
        }


def backup(home: Location, destination: Location, progress: Progress = no_progress) -> dict[str, Any]:
    """Copy the newest epoch of a home, its history included; the caller holds fold off, or owns the home."""
    started = time.monotonic()
    _refuse_taken(destination, "the destination")
    if f"{_absolute(destination)}/".startswith(f"{_absolute(home)}/"):
        raise LedgerError("the destination lies inside the home", hint="name a folder outside, best on another disk")
    ledger = Ledger(home, 0)
    ledger.open()
    if not ledger.exists:
        raise LedgerError(f"there is no ledger in {home}", hint="name a home that has been opened once")
    folders = sorted([*home.glob("tables/*"), *home.glob("state/*")], key=str)
    bases = [base for base in map(Base, folders) if base.exists]
    sources = list(_sources(home, ledger, bases))
    total = sum(size_of(source) for source in sources if source.is_file())
    with _all_or_nothing(destination, "the backup cannot be written"):
        make_folder(destination)
        _refuse_narrow(destination, total)
        counted = _Counted(progress, total)
        copied = {name_below(home, source): _copy(home, source, destination, counted) for source in sources}
        for base in bases:
            base.copy_log(destination / name_below(home, base.path))
        ledger.copy_log(destination)
        for log in sorted((one for one in destination.rglob("*.json") if one.parent.name == "_delta_log"), key=str):
            content = log.read_bytes()
            copied[name_below(destination, log)] = Copied(len(content), hashlib.sha256(content).hexdigest())
        _sync_folders(destination, copied)
        manifest = Manifest(ledger.epoch, ledger.oldest, now_utc().isoformat(), copied)
        replace_file(destination / MANIFEST, _written(manifest))
    progress(total, total)
    return {**manifest.summary(), "destination": str(destination), "seconds": time.monotonic() - started}


def restore(
    source: Location, home: Location, progress: Progress = no_progress, next_head: NextHead | None = None
) -> dict[str, Any]:
    """Restore a backup as a home of its own; every file is checked before the first is copied.

    The head that `next_head` returns is committed before the home can be opened, as an epoch after that of the backup,
    and the home is another one to the sinks of its changefeeds; without it, the home takes the place of the other.
    """
    started = time.monotonic()
    manifest = read_manifest(source)
    _refuse_taken(home, "the home")
    total = 2 * manifest.size
    counted = _Counted(progress, total)
    damaged = [
        f"{name}: {wrong}" for name, one in manifest.files.items() if (wrong := _check(source, name, one, counted))
    ]
    if damaged:
        raise LedgerError(
            f"the backup {source} is damaged",
            detail="; ".join(damaged[:10]) + (f"; and {len(damaged) - 10} more" if len(damaged) > 10 else ""),
            hint="put these files back or take another backup; nothing was restored",
        )
    with _all_or_nothing(home, "the home cannot be restored"):
        make_folder(home)
        _refuse_narrow(home, manifest.size)
        replace_file(home / RESTORING, str(source).encode())
        for name, expected in manifest.files.items():
            target = home / name
            make_folder(target.parent)
            if Copied(*copy_file(source / name, target, counted.add)) != expected:
                raise LedgerError(f"the file {name} of the backup changed while it was copied", hint="restore again")
        _sync_folders(home, manifest.files)
        ledger = Ledger(home, 0)
        ledger.load()
        if ledger.epoch != manifest.epoch:
            raise LedgerError(f"the backup holds epoch {ledger.epoch}, not {manifest.epoch} as its manifest says")
        make_folder((home / _RESTORED).parent)
        replace_file(home / _RESTORED, json.dumps({"id": secrets.token_hex(16), "epoch": ledger.epoch}).encode())
        if next_head is not None:
            # A copy is another home to its sinks.
            (home / HOME_ID).unlink(missing_ok=True)
            _commit_head(ledger, next_head(ledger.heads()))
        (home / RESTORING).unlink()
        sync_folder(home)
    return {**manifest.summary(), "epoch": ledger.epoch, "home": str(home), "seconds": time.monotonic() - started}


@dataclass(frozen=True)
class Restored:
    """The restore that made a home; the epochs after its epoch are not those of the home that was backed up."""

    id: str
    epoch: int


def read_restored(home: Location) -> Restored | None:
    """Return the restore that made a home; None if the home was not restored."""
    try:
        return Restored(**json.loads((home / _RESTORED).read_text()))
    except FileNotFoundError:
        return None


def _commit_head(ledger: Ledger, head: Mapping[str, Any]) -> None:
    if not head:
        return
    heads = ledger.heads()
    # Epochs never go back in time, also where the clock of this machine is behind that of the backup's.
    earliest = heads[-1].committed_at + timedelta(microseconds=1) if heads else now_utc()
    ledger.commit(ledger.epoch + 1, max(now_utc(), earliest), head, {})


def read_manifest(source: Location) -> Manifest:
    """What a backup says of itself; an error if it was never finished, or altered since."""
    try:
        parts = json.loads((source / MANIFEST).read_bytes())
        content = parts["backup"]
        if parts["sha256"] != _digest(content):
            raise ValueError("its checksum does not match")
        if content["format"] != _FORMAT:
            raise LedgerError(
                f"the backup {source} has format {content['format']}, and this release reads format {_FORMAT}",
                hint="restore it with the release that made it",
            )
        files = {_safe(name): Copied(**one) for name, one in content["files"].items()}
        return Manifest(content["epoch"], content["oldest_epoch"], content["backed_up_at"], files)
    except FileNotFoundError:
        raise LedgerError(
            f"{source} is not a whole backup",
            detail=f"It has no {MANIFEST}, which is written last: it was not finished, or it is another folder.",
            hint="take the backup again, or name the folder that 'headrace backup' wrote",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(
            f"the manifest of the backup {source} cannot be read",
            detail=f"{MANIFEST}: {error}.",
            hint="put the file back or take another backup; nothing was restored",
        ) from error


class _Counted:
    """Adds up what was done, and tells it."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, part: int) -> None:
        self._done += part
        self._progress(self._done, self._total)


def _sources(home: Location, ledger: Ledger, bases: list[Base]) -> Iterator[Location]:
    """Every file that the epoch needs, logs apart; of the identities, which are a cache, those that are whole."""
    yield from (home / "ledger" / one.path for one in ledger.files)
    yield from (home / "deltas" / name for name in sorted(ledger.large_files()))
    for base in bases:
        for file in base.files:
            yield file
            yield from (cached for cached in base.identity_files(file.name) if is_whole(cached))
    if (home / READERS).is_file():
        yield home / READERS
    # How far changefeeds are: one that is restored tells again what it told since.
    yield from sorted(home.glob("feeds/*/*.json"), key=str)
    if (home / HOME_ID).is_file():
        yield home / HOME_ID


def _copy(home: Location, source: Location, destination: Location, counted: _Counted) -> Copied:
    name = name_below(home, source)
    target = destination / name
    make_folder(target.parent)
    try:
        copied = Copied(*copy_file(source, target, counted.add))
    except FileNotFoundError:
        raise _damaged(name, "it is missing") from None
    if name != READERS and not name.startswith("feeds/") and copied.sha256 not in source.name:
        raise _damaged(name, "its content has changed since it was written")
    return copied


def _damaged(name: str, problem: str) -> LedgerError:
    return LedgerError(
        f"the file {name} of the home is damaged: {problem}",
        detail="A backup of it would be worth nothing, so none was made.",
        hint="run 'headrace verify --storage' to see which epoch is still whole",
    )


def _check(source: Location, name: str, expected: Copied, counted: _Counted) -> str:
    try:
        held = (source / name).stat().st_size
        if held != expected.size:
            return f"it has {held} bytes instead of {expected.size}"
        digest = digest_of(source / name)
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    counted.add(expected.size)
    return "" if digest == expected.sha256 else "its content has changed since it was written"


@contextmanager
def _all_or_nothing(folder: Location, failure: str) -> Generator[None, None, None]:
    """Inside, an empty folder is filled; where that fails, it is as before."""
    existed = folder.exists()
    try:
        yield
    except BaseException as error:
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_dir():
                remove_folder(path)
            else:
                path.unlink(missing_ok=True)
        if isinstance(folder, Path) and not existed and folder.is_dir():
            folder.rmdir()
        if isinstance(error, OSError):
            raise LedgerError(
                failure,
                detail=f"{error}. What was written of it has been removed again.",
                hint=f"free space or mend the rights of {folder}, or name another folder",
            ) from error
        raise


def _refuse_taken(folder: Location, what: str) -> None:
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise LedgerError(f"{what} {folder} cannot be read", detail=f"{error}.", hint="name another folder") from error
    if taken:
        raise LedgerError(
            f"{what} {folder} is not empty",
            detail="Nothing is ever written over.",
            hint="name a folder that does not exist yet, or empty this one",
        )


def _refuse_narrow(folder: Location, needed: int) -> None:
    if not isinstance(folder, Path):
        return
    free = shutil.disk_usage(folder).free
    if free < needed + _ROOM_FOR_LOGS:
        raise LedgerError(
            f"there is too little room in {folder}",
            detail=f"{needed + _ROOM_FOR_LOGS:,} bytes are needed, {free:,} are free.",
            hint="free space, or name a folder on another disk",
        )


def _sync_folders(root: Location, files: Mapping[str, Copied]) -> None:
    for folder in sorted({(root / name).parent for name in files} | {root}, key=str):
        sync_folder(folder)


def _absolute(location: Location) -> str:
    return str(location.resolve() if isinstance(location, Path) else location)


def _safe(name: str) -> str:
    """A file's name in a manifest, which must not lead out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name} leads out of the backup")
    return name


def _written(manifest: Manifest) -> bytes:
    content = {"format": _FORMAT, **asdict(manifest)}
    return json.dumps({"backup": content, "sha256": _digest(content)}, indent=1).encode()


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
