"""Minutes of hostile queries, bodies and streams beside honest pushes and queries, against a real server.

The limits: an epoch's 95th percentile at most doubles, /readyz answers within a second and an honest query within ten,
memory is flat, every acknowledged push is there exactly once, and every view equals its recompute.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.checks.hostile import Siege, told
from tests.ending_with_us import ending_with_us
from tests.waiting import PATIENCE, until

DEFINITIONS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2))",
    "CREATE TABLE cities (city STRING PRIMARY KEY, country STRING)",
    "CREATE VIEW by_city AS SELECT city, count(*) AS n, sum(amount) AS total FROM orders GROUP BY city",
    "CREATE VIEW abroad AS SELECT o.id, c.country, o.amount FROM orders o JOIN cities c ON o.city = c.city "
    "WHERE c.country <> 'NO'",
)
CITIES = {"Oslo": "NO", "Rome": "IT", "Graz": "AT", "Lyon": "FR"}
_START = 240.0
_HEADRACE = (sys.executable, "-c", "from headrace.cli.main import run; run()")
_RATIO, _READY, _QUERY = 2.0, 1.0, 10.0
# A part of memory that grows by less than this share, and this much, is flat.
_GROWTH, _SLACK_MB = 1.25, 150.0


@dataclass
class Honest:
    """Those who use the server as it is meant, and what they saw."""

    url: str
    key: str
    stop: threading.Event
    epochs: list[float] = field(default_factory=list[float])
    pushes: list[float] = field(default_factory=list[float])
    queries: list[float] = field(default_factory=list[float])
    ready: list[float] = field(default_factory=list[float])
    faults: Counter[str] = field(default_factory=Counter[str])
    acknowledged: set[int] = field(default_factory=set[int])
    open: set[int] = field(default_factory=set[int])

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=one, daemon=True) for one in (self._push, self._query, self._look)]
        for thread in threads:
            thread.start()
        return threads

    def forget(self) -> None:
        """What was measured so far is over; what was acknowledged is not."""
        for measured in (self.epochs, self.pushes, self.queries, self.ready):
            measured.clear()

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, headers={"Authorization": f"Bearer {self.key}"})

    def _push(self) -> None:
        cities = list(CITIES)
        with self._client() as client:
            for number in range(10_000_000):
                if self.stop.is_set():
                    return
                row = {"id": number, "city": cities[number % len(cities)], "amount": f"{number % 100}.25"}
                self.open.add(number)
                began_at = time.monotonic()
                answer = self._sent(
                    client,
                    "/v1/ingress/orders?wait=true",
                    content=json.dumps({"insert": row}),
                    headers={"Idempotency-Key": f"push-{number}"},
                )
                if answer is None:
                    continue
                if answer.status_code == 200:
                    self.open.discard(number)
                    self.acknowledged.add(number)
                    self.pushes.append(time.monotonic() - began_at)
                    self.epochs.append(answer.json()["seconds"])
                else:
                    self.faults[f"push: {answer.status_code} {answer.text[:120]}"] += 1
                self.stop.wait(0.2)

    def _query(self) -> None:
        with self._client() as client:
            while not self.stop.wait(1):
                began_at = time.monotonic()
                sql = "SELECT city, n, total, n * 2 AS twice FROM by_city ORDER BY total DESC"
                answer = self._sent(client, "/v1/query", json={"sql": sql})
                if answer is not None:
                    self.queries.append(time.monotonic() - began_at)
                    if answer.status_code != 200:
                        self.faults[f"query: {answer.status_code} {answer.text[:120]}"] += 1

    def _look(self) -> None:
        with self._client() as client:
            while not self.stop.wait(0.3):
                began_at = time.monotonic()
                try:
                    status = client.get("/readyz").status_code
                except httpx.HTTPError as error:
                    status = type(error).__name__
                self.ready.append(time.monotonic() - began_at)
                if status != 200:
                    self.faults[f"readyz: {status}"] += 1

    def _sent(self, client: httpx.Client, path: str, **parts: Any) -> httpx.Response | None:
        """Sent until it has room; None when nobody waits for it any more."""
        while True:
            try:
                answer = client.post(path, **parts)
            except httpx.HTTPError as error:
                self.faults[f"{path.split('?')[0]}: {type(error).__name__}"] += 1
                answer = None
            if answer is not None and answer.status_code not in (429, 503):
                return answer
            if self.stop.wait(0.2):
                return None


class Memory(threading.Thread):
    """What the server's processes hold, looked at every two seconds."""

    def __init__(self, pid: int, own: set[int], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._pid, self._first, self._stop_event = pid, own, stop
        self.own: list[float] = []
        self.others: list[float] = []

    def run(self) -> None:
        while not self._stop_event.wait(2):
            processes = family(self._pid)
            self.own.append(sum(_megabytes(one) for one in processes if one in self._first))
            self.others.append(sum(_megabytes(one) for one in processes if one not in self._first))

    def quarters(self) -> tuple[float, float]:
        """The medians of the second quarter and of the last."""
        part = max(1, len(self.own) // 4)
        return statistics.median(self.own[part : 2 * part]), statistics.median(self.own[-part:])


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(words[1]), []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found.extend(parents.get(one, ()))
    return found


def _megabytes(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def serving(home: Path, key: str, log: Path) -> Any:
    """A server as a process of its own: it, and its address."""
    environment = {**os.environ, "HEADRACE_API_KEYS": json.dumps([key]), "HEADRACE_SERVE_DEFINITIONS": "true"}
    command = ending_with_us([*_HEADRACE, "serve", "--home", home, "--port", "0", "--json"])
    with open(log, "ab") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the server did not start: {log.read_text()[-2000:]}")
        yield process, json.loads(line)["url"]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def hostile_key(client: httpx.Client, home: Path) -> str:
    """Make a key for those who do harm: askers are told apart by their keys, and share what there is."""
    command = [*_HEADRACE, "key", "create", "hostile", "--admin", "*", "--home", str(home), "--json"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=_START, check=True)
    key = json.loads(made.stdout)["key"]
    until(lambda: client.get("/v1/epochs", headers={"Authorization": f"Bearer {key}"}).status_code != 401)
    return key


def p95(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)] if seconds else float("nan")


def besiege(seconds: float, folder: Path, timed: bool = True) -> list[str]:
    """Run the siege and print its figures; the limits that it broke, those of time only if it is `timed`."""
    key, home, log = secrets.token_urlsafe(16), folder / "home", folder / "server.log"
    broken: list[str] = []
    with serving(home, key, log) as (process, url):
        with httpx.Client(base_url=url, timeout=_START, headers={"Authorization": f"Bearer {key}"}) as client:
            for sql in DEFINITIONS:
                client.post("/v1/query", json={"sql": sql}).raise_for_status()
            changes = {"cities": [{"insert": {"city": a, "country": b}} for a, b in CITIES.items()]}
            client.post("/v1/epochs", json=changes).raise_for_status()
            # The server and its Spark; whatever is started later is for queries.
            own = set(family(process.pid))
            began_at = time.monotonic()
            client.post("/v1/query", json={"sql": "SELECT count(*) AS n, max(id) AS last FROM orders"})
            print(f"first query {time.monotonic() - began_at:.1f} s", flush=True)
            stop, hostile_stop = threading.Event(), threading.Event()
            honest = Honest(url, key, stop)
            threads = honest.start()
            time.sleep(min(20.0, seconds / 4))
            honest.forget()
            time.sleep(min(60.0, seconds / 4))
            alone = p95(honest.epochs)
            print(_figures("alone", honest), flush=True)
            honest.forget()
            memory = Memory(process.pid, own, hostile_stop)
            siege = Siege(url, hostile_key(client, home), hostile_stop)
            memory.start()
            siege.start()
            time.sleep(seconds)
            besieged = p95(honest.epochs)
            print(_figures("besieged", honest), flush=True)
            measured = (max(honest.ready, default=0.0), max(honest.queries, default=0.0), len(honest.queries))
            hostile_stop.set()
            stop.set()
            siege.join()
            for thread in threads:
                thread.join(PATIENCE)
            print(told(siege), flush=True)
            broken += [f"hostile {fault} ({times} times)" for fault, times in siege.faults.items()]
            broken += [f"honest {fault} ({times} times)" for fault, times in honest.faults.items()]
            broken += _limits(alone, besieged, *measured, memory, timed)
            broken += _held(client, honest)
        broken += _ended(process)
    broken += _verified(home)
    return broken


def _figures(name: str, honest: Honest) -> str:
    return (
        f"{name}: {len(honest.epochs)} pushes, epoch p95 {p95(honest.epochs):.3f} s, "
        f"push p95 {p95(honest.pushes):.3f} s; "
        f"{len(honest.queries)} queries, p95 {p95(honest.queries):.2f} s, max {max(honest.queries, default=0):.2f} s; "
        f"{len(honest.ready)} looks at /readyz, max {max(honest.ready, default=0):.2f} s"
    )


def _limits(
    alone: float, besieged: float, ready: float, query: float, queries: int, memory: Memory, timed: bool
) -> list[str]:
    second, last = memory.quarters()
    print(
        f"epoch p95 {besieged / alone:.2f} times that alone; memory of the server and its Spark {second:.0f} MB in the "
        f"second quarter, {last:.0f} MB in the last; beside it at most {max(memory.others):.0f} MB",
        flush=True,
    )
    limits = {
        f"an epoch's p95 is {besieged / alone:.2f} times that alone, more than {_RATIO}": besieged <= _RATIO * alone,
        f"/readyz took {ready:.2f} s, more than {_READY}": ready <= _READY,
        f"an honest query took {query:.2f} s, more than {_QUERY}": query <= _QUERY,
    }
    limits = limits if timed else {}
    limits |= {
        "no honest query was answered": queries > 0,
        f"memory grew from {second:.0f} MB to {last:.0f} MB": last <= _GROWTH * second + _SLACK_MB,
    }
    return [text for text, holds in limits.items() if not holds]


def _held(client: httpx.Client, honest: Honest) -> list[str]:
    """Every acknowledged push is there once, and nothing is there that nobody sent."""
    answer = client.post("/v1/query", json={"sql": "SELECT id FROM orders"})
    if answer.status_code != 200:
        return [f"the orders cannot be read after the siege: {answer.status_code} {answer.text[:200]}"]
    there = Counter(int(row["id"]) for row in answer.json()["rows"])
    lost = honest.acknowledged - there.keys()
    strange = there.keys() - honest.acknowledged - honest.open
    twice = [number for number, times in there.items() if times > 1]
    print(f"{len(honest.acknowledged)} acknowledged, {len(there)} there, {len(honest.open)} open", flush=True)
    found = {"lost": lost, "twice": twice, "never sent": strange}
    return [f"{len(numbers)} pushes {word}" for word, numbers in found.items() if numbers]


def _ended(process: subprocess.Popen[str]) -> list[str]:
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return [f"the server did not end within {PATIENCE:.0f} s of SIGTERM"]
    return [] if code == 0 else [f"the server ended with {code}"]


def _verified(home: Path) -> list[str]:
    command = [*_HEADRACE, "verify", "--home", str(home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return [] if done.returncode == 0 else [f"verify: {(done.stdout + done.stderr)[-500:]}"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10)
    minutes = arguments.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="headrace-siege-", ignore_cleanup_errors=True) as folder:
        broken = besiege(minutes * 60, Path(folder))
    for reason in broken:
        print(f"broken: {reason}")
    print("every limit held" if not broken else f"{len(broken)} limits broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
