"""A schema registry, asked by its REST API: schemas by their ids, each asked for once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

import httpx

from headrace.capture.exact_json import read_record
from headrace.capture.messages import Undecodable
from headrace.errors import SourceError, SourceUnavailable

# A schema that is larger is none that anybody wrote.
MOST_BYTES = 4 * 1024 * 1024
MOST_REFERENCES = 100
KEPT_SCHEMAS = 1_000
# A made-up id must not be asked for with each record that has it, but one that is registered late must be found.
UNKNOWN_SECONDS = 30.0


@dataclass(frozen=True)
class RegistrySettings:
    """Where a registry is, and how it is asked."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    timeout_seconds: float = 10.0


@dataclass(frozen=True)
class RegisteredSchema:
    """The text of a schema, and those of the schemas that it refers to, each before the ones that refer to it."""

    text: str
    references: tuple[str, ...] = ()


class Registry:
    """The schemas of one registry.

    A registry that cannot be reached, or is not ready, raises `SourceUnavailable`, which passes; one that refuses who
    asks raises `SourceError`, which does not. An id that it does not know makes the record `Undecodable`.
    """

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        auth = httpx.BasicAuth(settings.user, settings.password) if settings.user else None
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        self._client = httpx.Client(
            base_url=settings.url.rstrip("/"), auth=auth, headers=headers, timeout=settings.timeout_seconds
        )
        self._lock = threading.Lock()
        self._known: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def schema(self, number: int) -> RegisteredSchema:
        """The schema with an id."""
        with self._lock:
            found = self._known.get(number)
            if found is not None:
                self._known.move_to_end(number)
                return found
            asked_at, reason = self._unknown.get(number, (None, ""))
            if asked_at is not None and self._clock() - asked_at < UNKNOWN_SECONDS:
                raise Undecodable(reason, "schema")
        try:
            found = self._ask(number)
        except Undecodable as unknown:
            with self._lock:
                _keep(self._unknown, number, (self._clock(), unknown.reason))
            raise
        with self._lock:
            _keep(self._known, number, found)
        return found

    def close(self) -> None:
        """Ask nothing any more."""
        self._client.close()

    def _ask(self, number: int) -> RegisteredSchema:
        answer = self._get(f"/schemas/ids/{number}", f"schema {number}")
        kind = answer.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise Undecodable(f"schema {number} is {str(kind)[:20]}, not Avro", "schema")
        texts: dict[tuple[str, int], str] = {}
        self._refer(answer, texts, ())
        return RegisteredSchema(_text(answer, f"schema {number}"), tuple(texts.values()))

    def _refer(
        self, answer: Mapping[str, Any], texts: dict[tuple[str, int], str], above: tuple[tuple[str, int], ...]
    ) -> None:
        """Add the schemas that an answer refers to, those first that they refer to themselves."""
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise Undecodable("the references of a schema are no list", "schema")
        for reference in cast("list[Any]", references):
            content = cast("dict[str, Any]", reference) if isinstance(reference, dict) else {}
            subject, version = content.get("subject"), content.get("version")
            if not isinstance(subject, str) or type(version) is not int:
                raise Undecodable("a reference of a schema names no subject and version", "schema")
            named = subject, version
            if named in texts:
                continue
            if named in above or len(texts) + len(above) >= MOST_REFERENCES:
                raise Undecodable("the references of a schema are a circle, or too many", "schema")
            what = f"version {version} of subject {subject[:60]}"
            # A subject may hold any sign: as one segment of the path it stays where it is.
            found = self._get(f"/subjects/{_segment(subject)}/versions/{version}", what)
            self._refer(found, texts, (*above, named))
            texts[named] = _text(found, what)

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        url = self._settings.url
        try:
            with self._client.stream("GET", path) as response:
                content = b""
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MOST_BYTES:
                        raise Undecodable(f"{what} has more than {MOST_BYTES} bytes", "schema")
                status = response.status_code
        except httpx.HTTPError as error:
            raise SourceUnavailable(
                f"the schema registry at {url} does not answer",
                detail=f"{type(error).__name__}: {error}",
                hint="start it, or mend the address; the source goes on when it answers",
            ) from error
        if status == 200:
            answer = read_record(content)
            if isinstance(answer, dict):
                return cast("dict[str, Any]", answer)
            raise Undecodable(f"the schema registry answers no object for {what}", "schema")
        if status == 404:
            raise Undecodable(f"the schema registry does not know {what}", "schema")
        if status in (401, 403):
            raise SourceError(
                f"the schema registry at {url} refuses us with {status}",
                hint="give it a user and a password, or a token, that may read schemas",
            )
        if status in (408, 425, 429) or status >= 500:
            raise SourceUnavailable(
                f"the schema registry at {url} is not ready: it answers {status}",
                hint="the source goes on when it answers",
            )
        raise SourceError(f"the schema registry at {url} answers {status} for {what}", hint="mend its address")


def _text(answer: Mapping[str, Any], what: str) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise Undecodable(f"the schema registry answers no text for {what}", "schema")
    return text


def _segment(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def _keep(kept: OrderedDict[int, Any], number: int, value: Any) -> None:
    kept[number] = value
    while len(kept) > KEPT_SCHEMAS:
        kept.popitem(last=False)
