"""Events check: `python -m tests.checks.events --writers 32 --kills 10` appends over HTTP while the server is killed.

Each writer appends to aggregates that it shares with all others, some of its events by an expected version, and sends
again what it has had no answer to, under the same event ids. A server is killed with -9 at random instants and started
again. At the end: versions without holes in every aggregate, positions without holes in the store, every event that was
acknowledged there once with the version that was told, none that nobody sent, and every projection equal to its rebuild
and to the states that Python folds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import headrace
from tests.ending_with_us import ending_with_us

_DEFINITIONS = """
CREATE EVENT STORE events WITH (snapshot_events = 20);
CREATE PROJECTION customers FOR EVENT STORE events AGGREGATE TYPE 'Customer'
    (name STRING, email STRING, visits BIGINT FROM '$.n') DELETED BY 'CustomerDeleted';
CREATE VIEW daily AS
    SELECT event_type, date_trunc('DAY', created_at) AS day, count(*) AS events FROM events GROUP BY ALL;
"""


@dataclass
class Written:
    """What the writers sent and were told, from any thread."""

    sent: set[str] = field(default_factory=set[str])
    told: dict[str, int] = field(default_factory=dict[str, int])
    conflicts: int = 0
    repeats: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)


def write(url: str, number: int, aggregates: int, written: Written, stopped: threading.Event) -> None:
    """One writer: appends until it is told to stop, and leaves nothing without an answer."""
    chosen = random.Random(number)
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stopped.is_set():
            aggregate = f"c{chosen.randrange(aggregates)}"
            events = [_event(chosen) for _ in range(chosen.choice((1, 1, 2, 5)))]
            expected: str | int = "any"
            if chosen.random() < 0.5:
                expected = _version(client, aggregate)
            with written.turn:
                written.sent.update(one["event_id"] for one in events)
            _append(client, aggregate, events, expected, written)


def _event(chosen: random.Random) -> dict[str, Any]:
    kind = "CustomerDeleted" if chosen.random() < 0.02 else "CustomerChanged"
    data = {chosen.choice(("name", "email", "n")): chosen.randrange(1000)}
    return {"event_id": str(uuid.UUID(int=chosen.getrandbits(128))), "event_type": kind, "event_data": data}


def _version(client: httpx.Client, aggregate: str) -> int:
    while True:
        try:
            answer = client.get(f"/v1/events/Customer/{aggregate}/state")
            if answer.status_code == 404:
                return 0
            if answer.status_code == 200:
                return int(answer.json()["version"])
        except httpx.HTTPError:
            pass
        time.sleep(0.2)


def _append(
    client: httpx.Client, aggregate: str, events: Sequence[dict[str, Any]], expected: str | int, written: Written
) -> None:
    """Send until there is an answer; what was refused for its version is not sent again, for it is nowhere."""
    tries = 0
    while True:
        tries += 1
        try:
            answer = client.post(f"/v1/events/Customer/{aggregate}", json={"events": events, "expected": expected})
        except httpx.HTTPError:
            time.sleep(0.2)
            continue
        if answer.status_code in (429, 503):
            time.sleep(0.2)
            continue
        with written.turn:
            written.repeats += tries > 1
            if answer.status_code == 409:
                written.conflicts += 1
                return
            assert answer.status_code == 200, answer.text
            last = int(answer.json()["version"])
            for back, one in enumerate(reversed(events)):
                written.told[one["event_id"]] = last - back
            return


class Server:
    """`headrace serve` in a process of its own, which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = "from headrace.cli.main import run; run()"
        arguments = ["serve", "--home", str(self._home), "--port", str(self.port)]
        self._process = subprocess.Popen(
            ending_with_us([sys.executable, "-c", program, *arguments]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 180
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            assert self._process.poll() is None, "the server ended by itself"
            time.sleep(0.1)
        raise SystemExit("the server did not start")

    def end(self, how: int) -> None:
        """Send it a signal, and wait until it is gone."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(120)


def validate(home: Path, written: Written) -> list[str]:
    """All that is wrong with what the home holds, given what the writers know."""
    faults: list[str] = []
    with headrace.open(home) as hr:
        store = hr.events("events")
        rows = store.read().to_pylist()
        ids = Counter(row["event_id"] for row in rows)
        versions: dict[str, list[int]] = {}
        for row in rows:
            versions.setdefault(row["aggregate_id"], []).append(row["event_version"])
        holes = [name for name, listed in versions.items() if listed != list(range(1, len(listed) + 1))]
        if holes:
            faults.append(f"versions have holes in {holes[:5]}")
        if [row["position"] for row in rows] != list(range(1, len(rows) + 1)):
            faults.append("positions have holes")
        faults += [f"event {one} is there {n} times" for one, n in ids.items() if n != 1][:5]
        faults += [f"event {one} was acknowledged and is lost" for one in written.told if one not in ids][:5]
        faults += [f"event {one} was sent by nobody" for one in ids if one not in written.sent][:5]
        at = {row["event_id"]: row["event_version"] for row in rows}
        wrong = [one for one, version in written.told.items() if at.get(one, version) != version]
        faults += [f"event {one} was told another version than it has" for one in wrong][:5]
        verdict = hr.verify()
        if not verdict.ok:
            faults.append(f"a projection is not its rebuild: {verdict}")
        faults += _states(hr, store, sorted(versions))
        print(json.dumps({"events": len(rows), "aggregates": len(versions), "epochs": hr.epoch}), flush=True)
    return faults


def _states(hr: Any, store: Any, aggregates: Sequence[str]) -> list[str]:
    """Each aggregate's row in the projection against its state, with snapshots and without."""
    faults: list[str] = []
    shown = {row["aggregate_id"]: row for row in hr.query("SELECT * FROM customers").to_pylist()}
    for name in aggregates:
        state = store.state("Customer", name)
        if state != store.state("Customer", name, snapshots=False):
            faults.append(f"{name} has another state with snapshots than without")
        row = shown.get(name)
        if (row is None) != (state is None):
            faults.append(f"{name} is {'not ' if row is None else ''}in the projection")
        elif row is not None and state is not None:
            texts = [None if state.get(one) is None else str(state[one]) for one in ("name", "email")]
            if [row["name"], row["email"], row["visits"]] != [*texts, state.get("n")]:
                faults.append(f"{name} is {row} in the projection and {state} by its events")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, kill and validate; 1 when anything is lost, doubled or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.events", description=__doc__)
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--aggregates", type=int, default=40)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15.0, help="at most so long between two kills")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else int(time.time())
    chosen = random.Random(seed)
    print(f"seed {seed}, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-events-") as folder:
        home = Path(folder) / "home"
        with headrace.open(home) as hr:
            hr.execute(_DEFINITIONS)
        server, written, stopped = Server(home), Written(), threading.Event()
        server.start()
        writers = [
            threading.Thread(target=write, args=(server.url, seed * 1000 + one, options.aggregates, written, stopped))
            for one in range(options.writers)
        ]
        for writer in writers:
            writer.start()
        for number in range(options.kills):
            time.sleep(chosen.uniform(0.2, options.seconds))
            server.end(signal.SIGKILL)
            server.start()
            print(f"kill {number + 1}: {len(written.told)} events acknowledged", flush=True)
        time.sleep(options.seconds)
        stopped.set()
        for writer in writers:
            writer.join()
        server.end(signal.SIGINT)
        faults = validate(home, written)
    for fault in faults:
        print(fault, flush=True)
    told = f"{len(written.told)} events of {options.writers} writers acknowledged, {options.kills} kills"
    print(
        f"{told}, {written.conflicts} conflicts, {written.repeats} appends sent again: {len(faults)} faults", flush=True
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
