"""Fields that can be forgotten: their values are encrypted with a key of whom they are about, and the key can go.

The keys lie in the home under event-keys/, a file each, outside of the log, whose past never changes: a key that is
deleted is gone. What was encrypted with it reads as NULL from then on, wherever it lies: in events, logs, bases,
snapshots and copies of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.errors import EventsRejected, LedgerError, Rejection
from headrace.events.event import SEALED, Append
from headrace.events.schemas import Types
from headrace.ledger.durable import put_if_absent
from headrace.storage.folders import make_folder, sync_folder
from headrace.storage.objects import Location

_FOLDER = "event-keys"
_CACHED = 10_000


class Keys:
    """The keys of those whom a store's encrypted fields are about."""

    def __init__(self, home: Location, store: str) -> None:
        self._folder = home / _FOLDER / store
        self._turn = threading.Lock()
        self._known: dict[str, tuple[str, bytes]] = {}

    def of(self, name: str) -> tuple[str, bytes]:
        """The key of a subject, by what stands for it, and the key's own id; made if there is none."""
        with self._turn:
            found = self._read(name)
            if found is not None:
                return found
            made = secrets.token_hex(8), secrets.token_bytes(32)
            content = json.dumps({"id": made[0], "key": made[1].hex()}).encode()
            make_folder(self._folder)
            try:
                put_if_absent(self._file(name), content)
            except FileExistsError:
                found = self._read(name)
                if found is None:
                    raise LedgerError("the key of encrypted fields cannot be read", hint="send it again") from None
                return found
            self._remember(name, made)
            return made

    def find(self, name: str) -> tuple[str, bytes] | None:
        """The key of a subject, None if there is none any more."""
        with self._turn:
            return self._read(name)

    def forget(self, subject: str) -> bool:
        """Delete the key of a subject for good; whether there was one."""
        name = name_of(subject)
        with self._turn:
            self._known.pop(name, None)
            path = self._file(name)
            if not path.is_file():
                return False
            path.unlink()
            if self._folder.is_dir():
                sync_folder(self._folder)
            return True

    def forget_all(self) -> None:
        """Delete the keys of all subjects for good, as those of a store that is gone with its events."""
        with self._turn:
            self._known.clear()
            if self._folder.is_dir():
                for path in list(self._folder.iterdir()):
                    path.unlink(missing_ok=True)
                sync_folder(self._folder)

    def _read(self, name: str) -> tuple[str, bytes] | None:
        # Looked for each time: another process may have forgotten it.
        path = self._file(name)
        if not path.is_file():
            self._known.pop(name, None)
            return None
        if name not in self._known:
            content = json.loads(path.read_bytes())
            self._remember(name, (content["id"], bytes.fromhex(content["key"])))
        return self._known[name]

    def _remember(self, name: str, key: tuple[str, bytes]) -> None:
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[name] = key

    def _file(self, name: str) -> Location:
        return self._folder / f"{name}.json"


def name_of(subject: str) -> str:
    """What stands for a subject in events and among the keys: it tells nothing of whom it is."""
    return hashlib.sha256(subject.encode()).hexdigest()


def seal(keys: Keys, store: str, types: Types, append: Append) -> Append:
    """The append with the values of marked fields encrypted."""
    events = list(append.events)
    for index, one in enumerate(events):
        found = types.get((one.event_type, one.schema_version))
        if found is None or not found.encrypted:
            continue
        data: dict[str, Any] = json.loads(one.data)
        subject = subject_of(append.aggregate_type, append.aggregate_id)
        if found.subject:
            named = data.get(found.subject)
            if not isinstance(named, str | int) or isinstance(named, bool):
                reason = f"{one.event_type} has no {found.subject}, which names whom its encrypted fields are about"
                raise EventsRejected([Rejection(store, index, reason)])
            subject = str(named)
        for name in found.encrypted:
            if data.get(name) is not None:
                data[name] = _sealed(keys, subject, name, data[name])
        events[index] = replace(one, data=json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return replace(append, events=tuple(events))


def subject_of(aggregate_type: str, aggregate_id: str) -> str:
    """Whom the fields of an aggregate are about, where none of them says so: the aggregate."""
    return f"{aggregate_type}/{aggregate_id}"


def _sealed(keys: Keys, subject: str, name: str, value: object) -> dict[str, str]:
    about = name_of(subject)
    key_id, key = keys.of(about)
    nonce = os.urandom(12)
    text = AESGCM(key).encrypt(nonce, json.dumps(value, ensure_ascii=False).encode(), name.encode())
    return {SEALED: base64.b64encode(nonce + text).decode(), "key": key_id, "subject": about}


def unsealed(keys: Keys, data: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its encrypted values as they were; those whose key is gone are None."""
    return {name: _opened(keys, name, value) for name, value in data.items()}


def _opened(keys: Keys, name: str, value: Any) -> Any:
    if not isinstance(value, dict) or SEALED not in value:
        return value
    sealed = cast("dict[str, str]", value)
    found = keys.find(sealed["subject"])
    if found is None or found[0] != sealed["key"]:
        return None
    content = base64.b64decode(sealed[SEALED])
    try:
        return json.loads(AESGCM(found[1]).decrypt(content[:12], content[12:], name.encode()))
    except InvalidTag:
        return None


def opener(keys: Keys) -> Callable[[str], str]:
    """From a text with encrypted values to the text without."""

    def opened(text: str) -> str:
        if SEALED not in text:
            return text
        return json.dumps(unsealed(keys, json.loads(text)), ensure_ascii=False, separators=(",", ":"))

    return opened


def open_texts(keys: Keys, texts: Sequence[str]) -> list[str]:
    """The same for many, most of which have none."""
    opened = opener(keys)
    return [opened(one) for one in texts]
