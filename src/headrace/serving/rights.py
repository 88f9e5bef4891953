"""What the sender of a request may read, and by what it is known: the one place that routes ask."""

from __future__ import annotations

import hashlib

from fastapi import Request

from headrace.serving.auth import is_known


def may_read(request: Request, relation: str) -> bool:
    """Whether a request may read a relation: a key opens every one of them."""
    return is_known(request) and bool(relation)


def caller_of(request: Request) -> str:
    """By what requests of one sender are counted together: the key, by its digest, or without one the address."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    given = credentials.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    if given:
        return hashlib.sha256(given.encode()).hexdigest()
    return request.client.host if request.client is not None else ""
