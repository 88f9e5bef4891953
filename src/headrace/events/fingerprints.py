"""What tells one function from another: its code, what it was made with, and what it calls in its own package.

The same in every process that runs the same release of Python: sets are sorted, and no address of an object counts.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, MethodType, ModuleType
from typing import Any, cast

_NUMBER = bool | int | float | complex | Decimal
_TIME = date | time | timedelta | tzinfo
_PLAIN = _NUMBER | _TIME | str | bytes | uuid.UUID | PurePath | range | EllipsisType | None


class _Untold(Exception):
    """Something has neither code nor a value that could be compared with that of another process."""


def fingerprint(function: Callable[..., Any]) -> str | None:
    """What tells a function from another; None where part of what it was made with cannot be told apart."""
    module = str(getattr(function, "__module__", None) or "")
    try:
        return _told(function, module.partition(".")[0], ())[:16]
    except (_Untold, RecursionError):
        return None


def _told(value: Any, package: str, inside: tuple[int, ...]) -> str:
    """A digest of a value, of which the digests of its parts are part."""
    if isinstance(value, _PLAIN):
        return _digest(type(value).__qualname__, repr(value))
    if isinstance(value, enum.Enum | ModuleType):
        return _digest(type(value).__qualname__, str(value) if isinstance(value, enum.Enum) else value.__name__)
    if id(value) in inside:
        return _digest("again", str(len(inside) - inside.index(id(value))))
    inside = (*inside, id(value))
    if isinstance(value, CodeType):
        return _digest("code", *_of_code(value, package, inside))
    if isinstance(value, type):
        return _digest("class", *_of_class(cast("type[Any]", value), package, inside))
    if isinstance(value, FunctionType):
        return _digest("function", *_of_function(value, package, inside))
    parts = _parts(value)
    if parts is None:
        raise _Untold
    told = [_told(one, package, inside) for one in parts]
    return _digest(type(value).__qualname__, *(sorted(told) if isinstance(value, set | frozenset | Mapping) else told))


def _parts(value: Any) -> Iterable[Any] | None:
    if isinstance(value, tuple | list | set | frozenset):
        return cast("Iterable[Any]", value)
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value).items()
    if isinstance(value, functools.partial):
        made = cast("functools.partial[Any]", value)
        return made.func, made.args, made.keywords
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, staticmethod | classmethod):
        return (cast("staticmethod[..., Any]", value).__func__,)
    if isinstance(value, re.Pattern):
        pattern = cast("re.Pattern[Any]", value)
        return pattern.pattern, pattern.flags
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None):
        return value.__module__, value.__qualname__
    return None


def _of_code(code: CodeType, package: str, inside: tuple[int, ...]) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_freevars, code.co_argcount, code.co_flags))
    for constant in code.co_consts:
        yield _told(constant, package, inside)


def _of_class(kind: type[Any], package: str, inside: tuple[int, ...]) -> Iterator[str]:
    yield f"{kind.__module__}.{kind.__qualname__}"
    if not _is_of(kind, package):
        return
    for name, value in sorted(vars(kind).items()):
        if isinstance(value, FunctionType | staticmethod | classmethod):
            yield _digest(name, _told(value, package, inside))


def _of_function(function: FunctionType, package: str, inside: tuple[int, ...]) -> Iterator[str]:
    yield f"{function.__module__}.{function.__qualname__}"
    if not _is_of(function, package):
        # What others have written changes with their release, of which nothing is known here.
        return
    yield _told(function.__code__, package, inside)
    for value in (function.__defaults__, function.__kwdefaults__):
        yield _told(value, package, inside)
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:
            # It is filled after the function was registered, as that of a function which calls itself.
            held = "empty"
        yield _told(held, package, inside)
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            try:
                yield _digest(name, _told(function.__globals__[name], package, inside))
            except _Untold:
                # A logger or a connection says nothing of how a pure function folds.
                continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_of(value: Any, package: str) -> bool:
    return str(value.__module__).partition(".")[0] == package


def _digest(*parts: str) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(f"{len(part)}:".encode())
        hashed.update(part.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()
