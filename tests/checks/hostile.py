"""What the siege sends: queries, bodies and connections that mean harm, each with what must come of it."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import httpx

_PATIENCE = 45.0
_SECONDS = 10.0
# How an answer ends a query: with rows, with its own error, by its time limit, or for want of room.
ANSWERED, REFUSED, TIMED_OUT, BUSY = "answered", "refused", "timed out", "busy"
# What is wrong with a query itself: it is no such statement, names what is not there or not allowed, or asks too much.
_OWN_ERRORS = frozenset(
    {"statement_error", "unsupported_statement", "query_error", "name_error", "view_error", "result_too_large"}
)


@dataclass(frozen=True)
class Asked:
    """A query and the ways in which it may end; one that is busy is asked again."""

    name: str
    sql: str
    ends: frozenset[str]


def heavy(name: str, sql: str) -> Asked:
    """More than a query may take: which of its limits is met first is all the same."""
    return Asked(name, sql, frozenset({ANSWERED, REFUSED, TIMED_OUT}))


def refused(name: str, sql: str) -> Asked:
    """Refused in any case; its time may be over before, since it waits for the processes that its asker has ended."""
    return Asked(name, sql, frozenset({REFUSED, TIMED_OUT}))


def answered(name: str, sql: str) -> Asked:
    """Answered, or out of time for the same reason."""
    return Asked(name, sql, frozenset({ANSWERED, TIMED_OUT}))


def end_of(answer: httpx.Response) -> str:
    """How an answer ends a query, by its code; the status where nothing of that kind was foreseen."""
    if answer.status_code == 200:
        return ANSWERED
    if answer.status_code in (429, 503):
        return BUSY
    if answer.headers.get("content-type") != "application/problem+json":
        return f"{answer.status_code}"
    code = answer.json()["code"]
    if code == "timeout":
        return TIMED_OUT
    return REFUSED if code in _OWN_ERRORS else f"{answer.status_code} {code}"


QUERIES: tuple[Asked, ...] = (
    heavy("collect_list", "SELECT size(collect_list(id)) FROM range(500000000)"),
    heavy("levenshtein", "SELECT * FROM VALUES (levenshtein(repeat('a', 250000), repeat('b', 250000)))"),
    heavy("sort", "SELECT * FROM range(300000000) ORDER BY hash(id) LIMIT 5"),
    heavy("cross join", "SELECT count(*) FROM range(10000000) a CROSS JOIN range(10000000) b"),
    heavy("endless sum", "SELECT sum(id) FROM range(1000000000000)"),
    heavy("repeat", "SELECT length(repeat('x', 2000000000))"),
    heavy("sequence", "SELECT size(sequence(1, 1500000000))"),
    heavy("too many rows", "SELECT * FROM range(1000000000)"),
    heavy("brackets", "SELECT " + "(" * 5000 + "1" + ")" * 5000),
    refused(
        "program in a comment",
        "SELECT * FROM ( /* /*+ */ SELECT TRANSFORM(a) USING 'id' AS (b string) FROM (VALUES (1)) AS t(a) -- */\n )",
    ),
    refused(
        "program in a hint",
        "SELECT /*+ h('*/ ') */ * FROM (SELECT TRANSFORM(a) USING 'id' AS (b string) FROM (VALUES ('x')) AS t(a)) -- '",
    ),
    refused("program in a view", "CREATE VIEW evil AS SELECT TRANSFORM(id) USING 'id' AS (b string) FROM orders"),
    refused("file by function", "SELECT * FROM table_changes_by_path('/tmp/any', 0)"),
    refused("file by name", "SELECT * FROM text.`/etc/hostname`"),
    refused("file by schema", "SELECT from_xml('<p/>', 'a string', map('rowValidationXSDPath', '/etc/hostname'))"),
    refused("method", "SELECT reflect('java.lang.System', 'getenv', 'PATH')"),
    answered("no such text", "SELECT CAST(X'FF' AS STRING) AS s"),
    answered("no such date", "SELECT date'-0044-03-15' AS d"),
)

# Bodies to /v1/ingress/orders that must change nothing.
BODIES: tuple[tuple[str, str, bytes], ...] = (
    ("exponent", "insert_delete", b'{"insert":{"id":-1,"city":"x","amount":1e99999999999999999999}}'),
    ("broken text", "insert_delete", b'{"insert":{"id":-1,"city":"\xff","amount":1}}'),
    ("bad lines", "insert_delete", b"x\n" * 200_000),
    ("weights", "weighted", b'{"weight":10000,"data":{"id":-1,"city":"x","amount":"no"}}\n' * 400),
    ("brackets", "insert_delete", b"[" * 100_000),
    ("digits", "insert_delete", b'{"insert":{"id":' + b"9" * 5000 + b"}}"),
    ("twice", "insert_delete", b'{"insert":{"id":-1,"id":-2}}'),
)


class Siege:
    """Threads that do harm until they are told to stop; what they got that they should not have is kept."""

    def __init__(self, url: str, key: str, stop: threading.Event) -> None:
        self._url, self._key, self._stop = url, key, stop
        self._address = (httpx.URL(url).host, int(httpx.URL(url).port or 80))
        self.sent: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}
        self.ends: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin: two who ask, one who sends, one who drips, one who only connects, one who listens without reading."""
        rounds: Sequence[Callable[[], None]] = (
            lambda: self._ask(QUERIES),
            lambda: self._ask(QUERIES[::-1]),
            self._send,
            self._drip,
            self._crowd,
            self._listen,
            self._forge,
        )
        for one in rounds:
            thread = threading.Thread(target=self._until_told, args=(one,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_PATIENCE + 30)

    def _until_told(self, once: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                once()
            except (OSError, httpx.HTTPError) as error:
                self.sent[f"connection: {type(error).__name__}"] += 1
                self._stop.wait(0.5)

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, timeout=_PATIENCE, headers={"Authorization": f"Bearer {self._key}"})

    def _ask(self, queries: Iterable[Asked]) -> None:
        with self._client() as client:
            for asked in queries:
                if self._stop.is_set():
                    return
                began_at = time.monotonic()
                self.sent["query"] += 1
                try:
                    # A text is read to its end: one that breaks off is told by httpx.
                    end = end_of(client.post("/v1/query", json={"sql": asked.sql, "timeout_seconds": _SECONDS}))
                except httpx.HTTPError as error:
                    end = f"{type(error).__name__} {error}"
                self.ends[end] += 1
                if end not in asked.ends and end != BUSY:
                    self.faults[f"query {asked.name}: {end}"] += 1
                took = time.monotonic() - began_at
                self.slowest[asked.name] = max(took, self.slowest.get(asked.name, 0.0))

    def _send(self) -> None:
        with self._client() as client:
            for name, form, body in BODIES:
                if self._stop.is_set():
                    return
                self.sent["body"] += 1
                answer = client.post("/v1/ingress/orders", params={"wait": "true", "update_format": form}, content=body)
                self._judge(f"body {name}", answer.status_code, frozenset({400, 413, 422, 429}))
        self._raw(b"POST /v1/ingress/orders HTTP/1.1\r\nContent-Length: 9999999999999999999\r\n", b"413")
        # No number of 64 bits: not even read as one.
        self._raw(b"POST /v1/ingress/orders HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n", b"400")
        self._raw(b"POST /v1/ingress/orders HTTP/1.1\r\nContent-Length: -1\r\n", b"400")
        self._stop.wait(0.5)

    def _drip(self) -> None:
        """Bodies that come a byte at a time hold a slot each, for no longer than a body may take."""
        head = self._head(b"POST /v1/ingress/orders HTTP/1.1\r\nContent-Length: 1000000\r\n")
        with _connections(self._address, 64) as taken:
            for one in taken:
                one.sendall(head)
            for _ in range(6):
                self.sent["drip"] += len(taken)
                for one in taken:
                    try:
                        one.sendall(b"x")
                    except OSError:
                        continue
                if self._stop.wait(5):
                    return

    def _crowd(self) -> None:
        """Connections that say nothing."""
        with _connections(self._address, 300) as taken:
            self.sent["idle connection"] += len(taken)
            self._stop.wait(20)

    def _listen(self) -> None:
        """Streams that nobody reads, and one that asks for what will never be."""
        with _connections(self._address, 20) as taken:
            for one in taken:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.sendall(self._head(b"GET /v1/changes/by_city HTTP/1.1\r\n"))
            self.sent["unread stream"] += len(taken)
            self._stop.wait(15)
        with self._client() as client:
            answer = client.get("/v1/changes/orders", headers={"Last-Event-ID": "999999999"})
            self._judge("stream of the future", answer.status_code, frozenset({410, 429}))

    def _forge(self) -> None:
        """What a page of another site has a browser send, and who has no key."""
        sql = quote("DELETE FROM orders WHERE id >= 0")
        forged = {"Sec-Fetch-Site": "cross-site", "Referer": "http://evil.example/", "Origin": "http://evil.example"}
        with httpx.Client(base_url=self._url, timeout=_PATIENCE) as client:
            for headers in ({}, forged, {"Authorization": "Bearer guessed"}, {"X-API-Key": ""}):
                answer = client.get(f"/v0/pipelines/p/query?sql={sql}", headers=headers)
                self._judge("stranger", answer.status_code, frozenset({400, 401, 403, 429}))
                self.sent["stranger"] += 1
        self._stop.wait(1)

    def _raw(self, head: bytes, wanted: bytes) -> None:
        with _connections(self._address, 1) as taken:
            taken[0].sendall(self._head(head))
            taken[0].settimeout(_PATIENCE)
            said = taken[0].recv(64)
            self.sent["raw"] += 1
            if wanted not in said and b"429" not in said:
                self.faults[f"{head.splitlines()[1].decode()}: {said[:20]!r}"] += 1

    def _head(self, head: bytes) -> bytes:
        host = f"{self._address[0]}:{self._address[1]}"
        return head + f"Host: {host}\r\nAuthorization: Bearer {self._key}\r\n\r\n".encode()

    def _judge(self, name: str, status: int, allowed: frozenset[int]) -> None:
        if status not in allowed:
            self.faults[f"{name}: {status}"] += 1


class _connections:  # noqa: N801
    """Some connections, as many as the server takes, closed in the end."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self._address, self._count = address, count
        self._taken: list[socket.socket] = []

    def __enter__(self) -> list[socket.socket]:
        for _ in itertools.repeat(None, self._count):
            try:
                self._taken.append(socket.create_connection(self._address, timeout=5))
            except OSError:
                break
        return self._taken

    def __exit__(self, *_: object) -> None:
        for one in self._taken:
            one.close()


def told(siege: Siege) -> str:
    """What was sent, how the queries ended, and how long the slowest of each took."""
    slowest = {name: round(seconds, 1) for name, seconds in sorted(siege.slowest.items(), key=lambda one: -one[1])}
    return f"sent {dict(siege.sent)}\nqueries {dict(siege.ends)}, slowest {json.dumps(slowest)}"
