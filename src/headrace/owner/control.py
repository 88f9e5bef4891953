"""The owner's ear: verbs are run by the process that owns a home, whoever asks.

One Unix socket, one JSON document per line: {"verb": ..., "arguments": {...}} is answered by {"result": ...} or by
{"error": {"code", "message", "detail", "hint", "transient"}}. The folder of the socket is open to its user only.
"""

from __future__ import annotations

import inspect
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, HomeBusy
from headrace.owner.ownership import Owner, living_owner
from headrace.storage.objects import Location
from headrace.storage.scratch import Scratch

Verb = Callable[..., Mapping[str, Any]]

_LONGEST_ADDRESS = 100  # the system's own limit is 104 or 108 bytes
_LONGEST_LINE = 64 * 1024 * 1024  # a script, or the rows that it gives
_WATCH_SECONDS = 1.0


class Control:
    """Listens at `address` until it is closed; each connection has its own thread."""

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self._verbs = dict(verbs)
        self._scratch = _short_scratch()
        self.address = _socket_in(self._scratch)
        self._closing = False
        self._open: dict[socket.socket, threading.Thread] = {}
        self._changing = threading.Lock()
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ear.bind(self.address)
        self._ear.listen()
        self._listener = threading.Thread(target=self._listen, name="headrace-control", daemon=True)
        self._listener.start()

    def offer(self, name: str, verb: Verb) -> None:
        """Run one more verb for whoever asks."""
        self._verbs[name] = verb

    def close(self) -> None:
        """Take no more questions, and return when those already taken are answered."""
        with self._changing:
            if self._closing:
                return
            self._closing = True
        self._wake_listener()
        self._ear.close()
        with self._changing:
            threads = list(self._open.values())
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
        for thread in threads:
            thread.join()
        self._scratch.close()

    def _wake_listener(self) -> None:
        # Closing a socket does not wake the thread that waits on it. Shutting it down does on Linux; a visitor does
        # everywhere, unless someone has cleared the folder away.
        with suppress(OSError):
            self._ear.shutdown(socket.SHUT_RDWR)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
            visitor.connect(self.address)
        self._listener.join(_WATCH_SECONDS)

    def _listen(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._ear.accept()
            except OSError:
                time.sleep(0.05)  # too many open files, say: it passes
                continue
            if self._closing:
                connection.close()
                return
            thread = threading.Thread(
                target=self._converse, args=(connection,), name="headrace-control-verb", daemon=True
            )
            with self._changing:
                self._open[connection] = thread
            thread.start()

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as questions:
                while (line := questions.readline(_LONGEST_LINE)) and not self._closing:
                    connection.sendall(json.dumps(self._answer(line), default=str).encode() + b"\n")
        except OSError:
            pass  # whoever asked has gone
        finally:
            with self._changing:
                del self._open[connection]
                connection.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            return {"result": self._run(line)}
        except HeadraceError as error:
            return {"error": _parts(error)}
        except Exception as error:
            return {
                "error": _parts(
                    HeadraceError(
                        "the owner of the home failed while it ran this",
                        detail=f"{type(error).__name__}: {error}",
                        hint="the owner goes on; its own output may say more",
                    )
                )
            }

    def _run(self, line: bytes) -> Mapping[str, Any]:
        try:
            question = json.loads(line)
            verb, arguments = self._verbs[question["verb"]], dict(question.get("arguments") or {})
            inspect.signature(verb).bind(**arguments)
        except (ValueError, TypeError, KeyError) as error:
            unknown = HeadraceError(
                "the owner of the home does not understand this",
                detail=f"{type(error).__name__}: {error}. It knows {', '.join(sorted(self._verbs))}.",
                hint="ask with the same release of Headrace that the owner runs",
            )
            unknown.code = "not_understood"
            raise unknown from error
        return verb(**arguments)


def ask_owner(home: Location, verb: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Have the running owner of a home run a verb, and return its result; none when no owner runs."""
    owner = living_owner(home)
    if owner is None:
        return None
    question = json.dumps({"verb": verb, "arguments": dict(arguments or {})}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_WATCH_SECONDS)
        asked = False
        try:
            line.connect(owner.address)
            asked = True
            line.sendall(question)
            answer = _await_answer(line, home, owner)
        except OSError as error:
            lives = living_owner(home) is not None
            if asked:
                # It may have done what it was asked, so this must not be done here, or there, once more.
                raise _not_known(home, owner, verb, lives) from error
            if lives:
                raise _silent(home, owner, verb) from error
            return None
    parts = json.loads(answer)
    if "error" in parts:
        told = parts["error"]
        error = HeadraceError(told["message"], detail=told["detail"], hint=told["hint"])
        # An owner of an older release does not say whether it may be sent again.
        error.code, error.transient = told["code"], told.get("transient", False)
        raise error
    return parts["result"]


def _await_answer(line: socket.socket, home: Location, owner: Owner) -> bytes:
    """The answer, however long it takes, for as long as the owner is heard."""
    answer = b""
    while not answer.endswith(b"\n"):
        try:
            part = line.recv(65536)
        except TimeoutError:
            now = living_owner(home)
            if now is None or now.token != owner.token:
                raise
            continue
        if not part:
            raise ConnectionResetError("the owner hung up")
        answer += part
    return answer


def _silent(home: Location, owner: Owner, verb: str) -> HomeBusy:
    return HomeBusy(
        f"the owner of the home {home} did not answer {verb}",
        detail=f"The home is held by {owner}. It is starting, closing, stopped, or out of reach from here.",
        hint="try again in a moment, run it on the owner's machine, or close the home there",
    )


def _not_known(home: Location, owner: Owner, verb: str, lives: bool) -> HeadraceError:
    error = HeadraceError(
        f"the owner of {home} did not answer {verb}" if lives else f"the owner of {home} ended while it ran this",
        detail=f"It was {owner}. Perhaps it has committed all of it, or a part.",
        hint="look at what the home holds now, then run what is missing",
    )
    error.code = "not_known"
    return error


def _parts(error: HeadraceError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "transient": error.transient,
    }


def _short_scratch() -> Scratch:
    """Return a private folder whose path leaves room for a socket's name; that of a killed owner is swept away."""
    scratch = Scratch()
    if len(_socket_in(scratch).encode()) <= _LONGEST_ADDRESS:
        return scratch
    scratch.close()
    return Scratch(Path("/tmp"))


def _socket_in(scratch: Scratch) -> str:
    return str(scratch.path / "control")
