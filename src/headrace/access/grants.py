"""What somebody may do: roles over relations, and one value that answers every question about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal, get_args

from headrace.errors import SetupError

Role = Literal["observe", "read", "write", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
# What each role includes: who may write may read, and an administrator may do both.
_INCLUDES: Mapping[Role, frozenset[Role]] = {
    "observe": frozenset({"observe"}),
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "admin": frozenset(ROLES),
}
_PATTERN = re.compile(r"[a-z0-9_*?]{1,128}")
EVERYTHING = "*"


@dataclass(frozen=True)
class Grant:
    """A role over the relations whose names match a pattern; a view may stand in for what is read of one."""

    role: Role
    relations: str = EVERYTHING
    stand_in: str | None = None

    def __str__(self) -> str:
        return f"{self.role}:{self.relations}" + (f"={self.stand_in}" if self.stand_in else "")

    @property
    def is_exact(self) -> bool:
        """Whether it names one relation, and no pattern."""
        return not set("*?").intersection(self.relations)

    def covers(self, role: Role, relation: str) -> bool:
        """Whether it gives a role over a relation."""
        return role in _INCLUDES[self.role] and fnmatchcase(relation.lower(), self.relations)


def read_grant(text: str) -> Grant:
    """The grant that a text such as read:sales_* or read:customers=customers_public is."""
    role, colon, rest = text.strip().lower().partition(":")
    # A role alone is for everything; nothing after the colon, such as a variable that is not set, is for nothing.
    relations, equal, stand_in = (rest if colon else EVERYTHING).partition("=")
    if role not in ROLES:
        raise _no_grant(text, f"there is no role {role}; there are {', '.join(ROLES)}")
    for name in (relations, stand_in) if equal else (relations,):
        if not _PATTERN.fullmatch(name):
            raise _no_grant(text, f"{name or 'nothing'} is no name of a relation, nor a pattern of * and ?")
    grant = Grant(role, relations, stand_in or None)
    if grant.stand_in is not None and (role != "read" or not grant.is_exact or set("*?").intersection(grant.stand_in)):
        raise _no_grant(text, "a view stands in for one relation that is read, both named in full")
    return grant


def _no_grant(text: str, reason: str) -> SetupError:
    return SetupError(
        f"{text} is no grant",
        detail=f"{reason[0].upper()}{reason[1:]}.",
        hint="write read:orders, write:sales_*, admin:*, observe, or read:customers=customers_public",
    )


@dataclass(frozen=True)
class Access:
    """Who asks, and what this one may do; every route judges by it and by nothing else.

    Relations that Headrace keeps itself hold what sources brought, unmasked: no pattern covers them, only their name.
    """

    who: str
    grants: tuple[Grant, ...] = ()
    # By relation, the view that everybody reads in its place who does not administer it.
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str])

    def may_read(self, relation: str, system: bool = False) -> bool:
        """Whether the rows of a relation, or of what stands in for it, may be read."""
        return self._has("read", relation, system)

    def may_write(self, relation: str) -> bool:
        """Whether changes may be sent to a table."""
        return self._has("write", relation)

    def may_administer(self, relation: str | None = None) -> bool:
        """Whether a relation, or without one the home, may be defined, altered and dropped, and its feeds moved."""
        if relation is None:
            return any(one.role == "admin" and one.relations == EVERYTHING for one in self.grants)
        return self._has("admin", relation)

    def may_observe(self) -> bool:
        """Whether figures and the state of sources may be seen: they tell names and counts, and no rows."""
        return any("observe" in _INCLUDES[one.role] and one.relations == EVERYTHING for one in self.grants)

    def reads_in_place_of(self, relation: str) -> str:
        """What is read where this relation is named: itself, or the view that stands in for it."""
        name = relation.lower()
        if self.may_administer(name):
            return name
        for one in self.grants:
            if one.stand_in is not None and one.relations == name:
                return one.stand_in
        return self.stand_ins.get(name, name)

    @cached_property
    def is_unlimited(self) -> bool:
        """Whether nothing needs to be asked."""
        return self.may_administer()

    def _has(self, role: Role, relation: str, system: bool = False) -> bool:
        covering: Iterable[Grant] = (one for one in self.grants if one.covers(role, relation))
        return any(one.is_exact or one.role == "admin" or not system for one in covering)


def unlimited(who: str) -> Access:
    """Somebody who may do everything."""
    return Access(who, (Grant("admin"),))
