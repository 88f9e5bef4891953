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
from collections.abc import Mapping, Sequence
from typing import Any, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.capture.exact_json import canonical, json_text, read_kept
from headrace.errors import EventsRejected, LedgerError, Rejection
from headrace.events.event import SEALED, Append
from headrace.events.schemas import Types
from headrace.ledger.durable import put_if_absent
from headrace.storage.folders import make_folder, sync_folder
from headrace.storage.objects import Location

_FOLDER = "event-keys"
_CACHED = 10_000
# For their user alone, as the keys of access/ are.
_OWN_FOLDER, _OWN_FILE = 0o700, 0o600

Key = tuple[str, bytes]


class Keys:
    """The keys of those whom a store's encrypted fields are about."""

    def __init__(self, home: Location, store: str) -> None:
        self._folder = home / _FOLDER / store
        self._turn = threading.Lock()
        self._known: dict[str, Key] = {}

    def of(self, name: str) -> Key:
        """The key of a subject, by what stands for it, and the key's own id; made if there is none."""
        with self._turn:
            found = self._read(name)
            if found is not None:
                return found
            made = secrets.token_hex(8), secrets.token_bytes(32)
            content = json.dumps({"id": made[0], "key": made[1].hex()}).encode()
            make_folder(self._folder.parent, _OWN_FOLDER)
            make_folder(self._folder, _OWN_FOLDER)
            try:
                put_if_absent(self._file(name), content, _OWN_FILE)
            except FileExistsError:
                found = self._read(name)
                if found is None:
                    raise LedgerError("the key of encrypted fields cannot be read", hint="send it again") from None
                return found
            self._remember(name, made)
            return made

    def find(self, name: str) -> Key | None:
        """The key of a subject, None if there is none any more."""
        with self._turn:
            return self._read(name)

    def forget(self, *names: str) -> bool:
        """Delete the keys of a subject for good, by what may stand for it; whether there was one."""
        with self._turn:
            found = False
            for name in names:
                self._known.pop(name, None)
                path = self._file(name)
                if path.is_file():
                    path.unlink()
                    found = True
            if found and self._folder.is_dir():
                sync_folder(self._folder)
            return found

    def forget_all(self) -> None:
        """Delete the keys of all subjects for good, as those of a store that is gone with its events."""
        with self._turn:
            self._known.clear()
            if self._folder.is_dir():
                for path in list(self._folder.iterdir()):
                    path.unlink(missing_ok=True)
                sync_folder(self._folder)

    def _read(self, name: str) -> Key | None:
        # Looked for each time: another process may have forgotten it.
        path = self._file(name)
        if not path.is_file():
            self._known.pop(name, None)
            return None
        if name not in self._known:
            content = json.loads(path.read_bytes())
            self._remember(name, (content["id"], bytes.fromhex(content["key"])))
        return self._known[name]

    def _remember(self, name: str, key: Key) -> None:
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[name] = key

    def _file(self, name: str) -> Location:
        return self._folder / f"{name}.json"


def names_of_aggregate(aggregate_type: str, aggregate_id: str) -> tuple[str, str]:
    """What stands for an aggregate in events and among the keys, now and before: it tells nothing of whom it is."""
    return _hashed("aggregate", aggregate_type, aggregate_id), _plain_hash(f"{aggregate_type}/{aggregate_id}")


def names_of_subject(subject: str) -> tuple[str, str]:
    """The same of one whom a field of an event names, who is never an aggregate."""
    return _hashed("subject", subject), _plain_hash(subject)


def _hashed(*parts: str) -> str:
    # Each with its length, so that none can pass for the end of another.
    hashed = hashlib.sha256()
    for part in parts:
        content = part.encode()
        hashed.update(len(content).to_bytes(8, "big") + content)
    return hashed.hexdigest()


def _plain_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Sealing:
    """Encrypts and decrypts for the length of one call, in which each key is looked for once."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._made: dict[str, Key] = {}
        self._found: dict[str, Key | None] = {}

    def sealed(self, store: str, types: Types, append: Append, index: int) -> str:
        """The data of an event of an append, with the values of marked fields encrypted."""
        one = append.events[index]
        found = types.get((one.event_type, one.schema_version))
        if found is None or not found.encrypted:
            return one.data
        data: dict[str, Any] = read_kept(one.data)
        about = names_of_aggregate(append.aggregate_type, append.aggregate_id)[0]
        if found.subject:
            named = data.get(found.subject)
            if not isinstance(named, str | int) or isinstance(named, bool):
                reason = f"{one.event_type} has no {found.subject}, which names whom its encrypted fields are about"
                raise EventsRejected([Rejection(store, index, f"{append.where}{reason}")])
            about = names_of_subject(str(named))[0]
        for name in found.encrypted:
            if data.get(name) is not None:
                data[name] = self._sealed(about, name, data[name])
        return json_text(data)

    def _sealed(self, about: str, name: str, value: object) -> dict[str, str]:
        if about not in self._made:
            self._made[about] = self._keys.of(about)
        key_id, key = self._made[about]
        nonce = os.urandom(12)
        text = AESGCM(key).encrypt(nonce, json_text(value).encode(), name.encode())
        return {SEALED: base64.b64encode(nonce + text).decode(), "key": key_id, "subject": about}

    def opened(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A document with its encrypted values as they were; those whose key is gone are None."""
        return {name: self._opened(name, value) for name, value in data.items()}

    def opened_text(self, text: str) -> str:
        """The same of a document as text."""
        return json_text(self.opened(read_kept(text))) if SEALED in text else text

    def is_same(self, kept: str, given: str) -> bool:
        """Whether a document that is kept is the one that is given; of what was forgotten nobody can tell."""
        was, now = read_kept(kept), read_kept(given)
        if SEALED in kept:
            forgotten = [
                name
                for name, value in was.items()
                if _is_sealed(value) and self._opened(name, value) is None and now.get(name) is not None
            ]
            was = self.opened(was) | {name: now[name] for name in forgotten}
        return canonical(was) == canonical(now)

    def _opened(self, name: str, value: Any) -> Any:
        if not _is_sealed(value):
            return value
        sealed = cast("dict[str, str]", value)
        about = sealed["subject"]
        if about not in self._found:
            self._found[about] = self._keys.find(about)
        found = self._found[about]
        if found is None or found[0] != sealed["key"]:
            return None
        content = base64.b64decode(sealed[SEALED])
        try:
            return read_kept(AESGCM(found[1]).decrypt(content[:12], content[12:], name.encode()).decode())
        except InvalidTag:
            return None


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and SEALED in value


def unsealed(keys: Keys, data: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its encrypted values as they were; those whose key is gone are None."""
    return Sealing(keys).opened(data)


def open_texts(keys: Keys, texts: Sequence[str]) -> list[str]:
    """The same for many as texts, most of which have none."""
    sealing = Sealing(keys)
    return [sealing.opened_text(one) for one in texts]
