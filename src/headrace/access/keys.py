"""API keys: made once, kept as digests, looked up by their public part, revoked and expired.

A key reads hr_<id>_<secret>. The id is public: it names the key in lists, in the audit trail and in logs. The secret is
32 random bytes, so a plain SHA-256 of it cannot be tried out; it is shown once and kept nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from headrace.access.book import Book, Document
from headrace.access.grants import Access, Grant, read_grant
from headrace.errors import LedgerError, SetupError
from headrace.storage.objects import Location

PREFIX = "hr_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Key:
    """A key as the home keeps it: who it is for, what it may do, until when; and the digest of its secret."""

    id: str
    name: str
    digest: str
    grants: tuple[Grant, ...]
    created_at: str
    created_by: str
    expires_at: str | None = None
    revoked_at: str | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything now."""
        return self.revoked_at is None and (self.expires_at is None or now < datetime.fromisoformat(self.expires_at))

    def to_json(self) -> dict[str, Any]:
        """As it is written, and listed without its digest."""
        return {**self.__dict__, "grants": [str(one) for one in self.grants]}


@dataclass(frozen=True)
class Keys:
    """All keys of a home, and the views that stand in for its relations."""

    keys: Mapping[str, Key]
    stand_ins: Mapping[str, str]

    def access_of(self, digest: str, now: datetime | None = None) -> Access | None:
        """What the holder of the key of a digest may do; None for one that is unknown, revoked or expired.

        What is held and compared are digests: the time that it takes to find one tells nothing of the secret behind it.
        """
        key = self.by_digest.get(digest)
        if key is None or not hmac.compare_digest(digest, key.digest) or not key.is_valid(now or datetime.now(UTC)):
            return None
        return Access(f"{key.name} ({key.id})", key.grants, self.stand_ins)

    @cached_property
    def by_digest(self) -> Mapping[str, Key]:
        """The keys by what is kept of their secrets."""
        return {one.digest: one for one in self.keys.values()}


def read_keys(home: Location) -> Keys:
    """The keys of a home."""
    return keys_of(Book(home).read()[1])


def keys_of(document: Document) -> Keys:
    """The keys that a document holds; one that cannot be understood is an error: nobody is let in by a guess."""
    try:
        listed = [_read(one) for one in document.get("keys", [])]
        return Keys({one.id: one for one in listed}, dict(document.get("stand_ins", {})))
    except (TypeError, KeyError, ValueError, AttributeError, SetupError) as error:
        raise LedgerError(
            "the keys of the home cannot be understood",
            detail=f"{error}.",
            hint="use the release that wrote them, or put the folder access back from a copy",
        ) from error


def _read(one: dict[str, Any]) -> Key:
    grants = tuple(read_grant(text) for text in one["grants"])
    return Key(**{name: value for name, value in one.items() if name != "grants"}, grants=grants)


def create_key(
    home: Location, name: str, grants: Sequence[Grant], by: str, expires_at: datetime | None = None
) -> tuple[Key, str]:
    """Make a key; the token that is returned with it is shown once and kept nowhere."""
    if not _NAME.fullmatch(name):
        raise SetupError(
            "a key needs a name", detail="Letters, digits, blanks and ._@- make one, 64 at most.", hint="name its user"
        )
    if not grants:
        raise SetupError("a key that may do nothing is not made", hint="give it --read, --write, --admin or --observe")
    identity = f"{PREFIX}{secrets.token_hex(4)}"
    token = f"{identity}_{secrets.token_urlsafe(32)}"
    expires = None if expires_at is None else expires_at.isoformat(timespec="seconds")
    made = Key(identity, name, digest_of(token), tuple(grants), _now(), by, expires)

    def added(document: Document) -> Document:
        held = keys_of(document)
        if any(one.name == name and one.revoked_at is None for one in held.keys.values()):
            raise SetupError(
                f"there is a key {name}", hint="choose another name, or revoke that one: headrace key revoke"
            )
        if identity in held.keys:
            raise SetupError("the id of the key is taken", hint="try again")
        return {**document, "keys": [*document.get("keys", []), made.to_json()]}

    Book(home).change(added)
    return made, token


def revoke_key(home: Location, which: str) -> Key:
    """Revoke a key by its id or its name; it stays listed."""
    revoked: list[Key] = []

    def changed(document: Document) -> Document:
        held = keys_of(document).keys.values()
        found = [one for one in held if which in (one.id, one.name) and one.revoked_at is None]
        if not found:
            raise SetupError(f"there is no key {which} in force", hint="headrace key list shows ids and names")
        at = _now()
        revoked[:] = [replace(found[0], revoked_at=at)]
        keys = [{**one, "revoked_at": at} if one["id"] == found[0].id else one for one in document["keys"]]
        return {**document, "keys": keys}

    Book(home).change(changed)
    return revoked[0]


def set_stand_in(home: Location, relation: str, view: str | None) -> None:
    """Have a view stand in for a relation for all who do not administer it; None takes it back."""
    name = read_grant(f"read:{relation}={view or relation}").relations

    def changed(document: Document) -> Document:
        stand_ins = dict(document.get("stand_ins", {}))
        if view is None and stand_ins.pop(name, None) is None:
            raise SetupError(f"nothing stands in for {name}", hint="headrace policy list shows what does")
        if view is not None:
            stand_ins[name] = view.lower()
        return {**document, "stand_ins": stand_ins}

    Book(home).change(changed)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
