"""What the sender of a request may read, and by what it is known: the one place that routes ask."""

from __future__ import annotations

import hashlib

from fastapi import Request

from headrace.serving.access import access_in
from headrace.serving.auth import is_known


def may_read(request: Request, relation: str) -> bool:
    """Whether a request may read a relation, or what stands in for it."""
    return is_known(request) and access_in(request.scope).may_read(relation)


def reads_itself(request: Request, relation: str) -> bool:
    """Whether a request reads a relation as it is, and no view in its place."""
    return may_read(request, relation) and access_in(request.scope).reads_in_place_of(relation) == relation


def caller_of(request: Request) -> str:
    """By what requests of one sender are counted together: the key, by its digest, or without one the address."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    given = credentials.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    if given:
        return hashlib.sha256(given.encode()).hexdigest()
    return request.client.host if request.client is not None else ""
