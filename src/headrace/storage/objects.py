"""Objects of a store such as S3, named and listed like files: what a home at a URI is made of.

An object is whole or not there, and durable once the store has said so. `create` gives a name only once, which is all
that a home needs to have one owner and one order of commits. Folders are prefixes: they come with their first object
and go with their last.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore, from_url

from headrace.errors import SetupError
from headrace.storage.scratch import Scratch

SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss")
# What belongs to the connection and not to the account; delta-rs takes both in one.
_CONNECTION = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "proxy_url",
    "timeout",
    "user_agent",
)
_ANSWERED_WITHIN = 30
_RETRIES = 6
_GIVE_UP_AFTER = 60
_CACHE_BYTES = 2 * 1024**3
_PART_BYTES = 8 * 1024 * 1024


class Unconfirmed(OSError):
    """A write that the store may have done, or may yet do: it has not said so."""


@dataclass(frozen=True)
class Tagged:
    """What an object holds, with the tag that tells it from other content, and when it was written."""

    content: bytes
    tag: str
    modified_at: float


@dataclass(frozen=True)
class Stat:
    """What a store says of an object without giving it."""

    st_size: int
    st_mtime: float


class Bucket:
    """A connection to the part of a store that lies under one URI, with the files that were fetched from it."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self.uri = uri.rstrip("/")
        account, connection = _split(options)
        # Also for delta-rs, so that both ask the same store in the same name.
        self.options = {**account, **{name: str(value).lower() for name, value in connection.items()}}
        try:
            # Each provider has a type of its own for these; what they hold comes from the user and is checked there.
            given: dict[str, Any] = {"config": account, "client_options": connection}
            retries: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_GIVE_UP_AFTER)}
            self.client: ObjectStore = from_url(self.uri, retry_config=retries, **given)
        except (BaseError, ValueError) as error:
            raise SetupError(
                f"{self.uri} cannot be used as a home",
                detail=_first_line(error),
                hint="see the setting storage_options, and the variables of the environment that its provider names",
            ) from error
        self._fetched = _Fetched()

    def fetched(self, name: str) -> AbstractContextManager[Path]:
        """A file with the content of an object whose name is never given twice."""
        return self._fetched.file(name, lambda: self.parts(name))

    def parts(self, name: str) -> Iterator[bytes]:
        """The content of an object, a part at a time."""
        with _as_os_errors(f"{self.uri}/{name}"):
            for part in obstore.get(self.client, name).stream(min_chunk_size=_PART_BYTES):
                yield bytes(part)


class _Fetched:
    """Fetched files in a folder that goes with the process; the longest unread go when there are too many bytes."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._folder: Scratch | None = None
        self._sizes: OrderedDict[Path, int] = OrderedDict()
        self._paths: dict[str, Path] = {}
        self._in_use: Counter[Path] = Counter()
        self._number = 0

    @contextmanager
    def file(self, name: str, content: Callable[[], Iterable[bytes]]) -> Generator[Path, None, None]:
        path = self._taken(name) or self._add(name, content)
        try:
            yield path
        finally:
            with self._turn:
                self._in_use[path] -= 1

    def _taken(self, name: str) -> Path | None:
        with self._turn:
            path = self._paths.get(name)
            if path is not None:
                self._sizes.move_to_end(path)
                self._in_use[path] += 1
            return path

    def _add(self, name: str, content: Callable[[], Iterable[bytes]]) -> Path:
        with self._turn:
            if self._folder is None:
                self._folder = Scratch()
                weakref.finalize(self, self._folder.close)
            self._number += 1
            path = self._folder.path / str(self._number)
        try:
            with open(path, "xb") as file:
                for part in content():
                    file.write(part)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        with self._turn:
            self._in_use[path] += 1
            # Where two fetched it at once, the one that is no longer named goes like all others, by its age.
            self._paths[name], self._sizes[path] = path, path.stat().st_size
            self._make_room()
        return path

    def _make_room(self) -> None:
        for path in list(self._sizes):
            if sum(self._sizes.values()) <= _CACHE_BYTES:
                return
            if not self._in_use[path]:
                # Whoever has it mapped keeps its content; only the name goes.
                del self._sizes[path], self._in_use[path]
                path.unlink(missing_ok=True)
                self._paths = {name: one for name, one in self._paths.items() if one != path}


@dataclass(frozen=True, order=True)
class ObjectPath:
    """An object or a folder of objects, by its name; as far as files are used here, it is used like a Path."""

    bucket: Bucket = field(compare=False, repr=False)
    key: str = ""
    size: int | None = field(default=None, compare=False, repr=False)

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.bucket, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.bucket.uri}/{self.key}".rstrip("/")

    @property
    def name(self) -> str:
        """The last part of its name."""
        return str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """What follows the last dot of its name, with the dot."""
        stem, dot, end = self.name.rpartition(".")
        return dot + end if stem else ""

    @property
    def stem(self) -> str:
        """Its name without the suffix."""
        return self.name.removesuffix(self.suffix)

    @property
    def parent(self) -> ObjectPath:
        """The folder that it lies in."""
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> ObjectPath:
        """Its neighbour of another name."""
        return self.parent / name

    def exists(self) -> bool:
        """Whether there is an object of this name, or one below it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        if self.size is not None:
            return True
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there is an object below it."""
        return self.size is None and next(self._below(), None) is not None

    def stat(self) -> Stat:
        """Its size, and when it was written by the store's clock."""
        with _as_os_errors(self):
            found = obstore.head(self.bucket.client, self.key)
        return Stat(found["size"], found["last_modified"].timestamp())

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects and folders that lie in this folder."""
        with _as_os_errors(self):
            found = obstore.list_with_delimiter(self.bucket.client, self.key or None)
        yield from (ObjectPath(self.bucket, one.strip("/")) for one in found["common_prefixes"])
        yield from (ObjectPath(self.bucket, one["path"], one["size"]) for one in found["objects"])

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        """The objects and folders at any depth whose last name matches."""
        seen: set[ObjectPath] = {self}
        for one in self._below():
            folder = one.parent
            while folder not in seen:
                seen.add(folder)
                if fnmatchcase(folder.name, pattern):
                    yield folder
                folder = folder.parent
            if fnmatchcase(one.name, pattern):
                yield one

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The objects and folders whose names below this one match, part by part."""
        part, _, rest = pattern.partition("/")
        if "*" not in part:
            found: Iterable[ObjectPath] = (one for one in [self / part] if rest or one.exists())
        else:
            found = (one for one in self.iterdir() if fnmatchcase(one.name, part))
        for one in found:
            if not rest:
                yield one
            elif one.size is None:
                yield from one.glob(rest)

    def read_bytes(self) -> bytes:
        """Its content."""
        with _as_os_errors(self):
            return bytes(obstore.get(self.bucket.client, self.key).bytes())

    def read_text(self) -> str:
        """Its content as text."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Put content in its place, whatever was there."""
        with _as_os_errors(self):
            obstore.put(self.bucket.client, self.key, content, use_multipart=False)

    def upload(self, file: Path) -> None:
        """Put the content of a file in its place."""
        with _as_os_errors(self), open(file, "rb") as content:
            obstore.put(self.bucket.client, self.key, content, chunk_size=_PART_BYTES)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        with _as_os_errors(self):
            try:
                obstore.delete(self.bucket.client, self.key)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def remove_all(self) -> None:
        """Remove every object below."""
        keys = [one.key for one in self._below()]
        with _as_os_errors(self):
            if keys:
                obstore.delete(self.bucket.client, keys)

    def create(self, content: bytes) -> None:
        """Give the name to content; FileExistsError if other content has it, Unconfirmed if the store does not tell.

        A request that is sent again because its answer was lost finds its own content: that is no refusal. So content
        must not be the same for two writers.
        """
        try:
            with _as_os_errors(self):
                obstore.put(self.bucket.client, self.key, content, mode="create", use_multipart=False)
        except (PermissionError, FileNotFoundError):
            raise
        except OSError as error:
            try:
                held = self.read_bytes()
            except OSError:
                raise Unconfirmed(*error.args) from error
            if held != content:
                raise FileExistsError(str(self)) from None

    def tagged(self) -> Tagged:
        """Its content with its tag."""
        with _as_os_errors(self):
            found = obstore.get(self.bucket.client, self.key)
            meta = found.meta
            return Tagged(bytes(found.bytes()), meta["e_tag"] or "", meta["last_modified"].timestamp())

    def _below(self) -> Iterator[ObjectPath]:
        with _as_os_errors(self):
            for some in obstore.list(self.bucket.client, self.key or None, chunk_size=1000):
                yield from (ObjectPath(self.bucket, one["path"], one["size"]) for one in some)


Location = Path | ObjectPath
"""Where something durable lies: on a disk or in an object store."""


def location_of(home: str | os.PathLike[str], options: Mapping[str, str]) -> Location:
    """The location that a folder's path or a URI names."""
    if "\0" in str(home):
        raise SetupError(
            f"{str(home)!r} is not a place for a home",
            detail="It has a character that no name of a file can have.",
            hint="give a folder, or the URI of a bucket with a prefix, such as s3://bucket/home",
        )
    scheme, found, rest = str(home).partition("://")
    if not found:
        return Path(home)
    # What stands before the next slash is a machine, and this is none of another's.
    if scheme == "file" and rest.startswith(("/", "localhost/")):
        return Path(urlsplit(str(home)).path)
    if scheme not in SCHEMES or not rest.strip("/"):
        raise SetupError(
            f"{home} is not a place for a home",
            detail=f"Known are folders and {', '.join(f'{one}://' for one in SCHEMES)}.",
            hint="give a folder, or the URI of a bucket with a prefix, such as s3://bucket/home",
        )
    return ObjectPath(Bucket(str(home), options))


def size_of(location: Location) -> int:
    """How many bytes a file or an object has."""
    known = location.size if isinstance(location, ObjectPath) else None
    return location.stat().st_size if known is None else known


def name_below(folder: Location, location: Location) -> str:
    """A name as seen from a folder above it."""
    return str(location).removeprefix(str(folder)).lstrip("/")


def local_file(location: Location) -> AbstractContextManager[Path]:
    """A file to read and to map, of a name that is never given twice; from an object store it is fetched once."""
    return nullcontext(location) if isinstance(location, Path) else location.bucket.fetched(location.key)


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    account: dict[str, str] = {}
    connection: dict[str, Any] = {"timeout": f"{_ANSWERED_WITHIN}s"}
    allowed = os.environ.get("AWS_ALLOW_HTTP", os.environ.get("ALLOW_HTTP", ""))
    for name, value in {**({"allow_http": allowed} if allowed else {}), **options}.items():
        plain = name.lower().removeprefix("aws_")
        if plain in _CONNECTION:
            connection[plain] = value.lower() in ("true", "1") if plain.startswith(("allow", "http")) else value
        else:
            account[name.lower()] = value
    return account, connection


class StoreFailed(OSError):
    """What an object store said instead of an answer: it may give one later."""


@contextmanager
def _as_os_errors(what: object) -> Generator[None, None, None]:
    """Inside, what a store refuses is an error as a disk would raise it."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise FileExistsError(str(what)) from None
    except FileNotFoundError:
        raise FileNotFoundError(2, "No such object", str(what)) from None
    except BaseError as error:
        kind = PermissionError if "Denied" in type(error).__name__ or "Unauth" in type(error).__name__ else StoreFailed
        raise kind(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    """What a store said, without the anatomy of the request below it."""
    return str(error).partition("\n")[0].strip()
