"""The owner of a home is killed under load while another process stands by: how long nobody is served, what is lost.

    python -m tests.checks.standby --rounds 3

Writers send rows one after the other to whichever of the two answers, each under an idempotency key, and again until it
is acknowledged. The table has no key, so a row that was applied twice is there twice. At the end the home is read.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

import headrace
from headrace.local.ports import free_port
from tests.ending_with_us import ending_with_us
from tests.waiting import PATIENCE, until

SQL = """
CREATE TABLE marks (writer INT, number INT);
CREATE VIEW counted AS SELECT writer, count(*) AS n, max(number) AS last FROM marks GROUP BY writer;
"""
WRITERS = 4
LIMIT_SECONDS = 5.0


class Process:
    """A server, or one that stands by."""

    def __init__(self, home: Path, port: int, *options: str) -> None:
        self.port = port
        # An owner that has ended is replaced at once, not when it was silent for so long: this check ends before.
        environment = {**os.environ, "HEADRACE_OWNER_TIMEOUT": "PT1H"}
        command = [sys.executable, "-c", "from headrace.cli.main import run; run()", "serve", "--home", str(home)]
        self.process = subprocess.Popen(
            ending_with_us([*command, "--port", str(port), *options]),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def said(self, word: str) -> str:
        """The first line that it prints with a word in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if word in line:
                return line
        raise AssertionError(f"it ended with {self.process.wait()} before it said {word}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._hear_no_more()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        self._hear_no_more()

    def _hear_no_more(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()


class Load:
    """Writers that note what was acknowledged, and when."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.acknowledged: list[tuple[float, int, int]] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(one,)) for one in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, writer: int) -> None:
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            for number in itertools.count():
                if self._over.is_set():
                    return
                body = json.dumps({"marks": [{"insert": {"writer": writer, "number": number}}]})
                for port in itertools.cycle(self.ports):
                    try:
                        answer = client.post(
                            f"http://127.0.0.1:{port}/v1/epochs",
                            content=body,
                            headers={"Idempotency-Key": f"{writer}-{number}"},
                        )
                    except httpx.HTTPError:
                        time.sleep(0.02)
                        continue
                    if answer.status_code == 200:
                        self.acknowledged.append((time.monotonic(), writer, number))
                        break
                    time.sleep(0.02)


def run(rounds: int, seconds: float, limit: float = LIMIT_SECONDS) -> bool:
    """Kill the owner so many times; whether no gap was longer than the limit and nothing was lost or doubled."""
    with tempfile.TemporaryDirectory(prefix="headrace-standby-") as folder:
        home = Path(folder) / "home"
        with headrace.open(str(home)) as hr:
            hr.execute(SQL)
        ports = [free_port(), free_port()]
        owner, standby = Process(home, ports[0]), None
        owner.said("Serving")
        load, gaps = Load(ports), list[float]()
        try:
            for number in range(rounds):
                standby = Process(home, ports[(number + 1) % 2], "--standby")
                standby.said("Standing by")
                time.sleep(seconds)
                killed_at = time.monotonic()
                owner.kill()
                standby.said("Serving")
                served = time.monotonic() - killed_at
                until(lambda killed_at=killed_at: any(at > killed_at + 0.01 for at, *_ in load.acknowledged))
                gap = min(at for at, *_ in load.acknowledged if at > killed_at + 0.01) - killed_at
                gaps.append(gap)
                print(f"round {number + 1}: listening after {served:.2f} s, next write acknowledged after {gap:.2f} s")
                owner, standby = standby, None
                time.sleep(seconds)
        finally:
            load.stop()
            for one in (owner, standby):
                if one is not None:
                    one.end()
        with headrace.open(str(home)) as hr:
            held = [(row["writer"], row["number"]) for row in hr.query("SELECT * FROM marks").to_pylist()]
            verdict = hr.verify()
    sent = {(writer, number) for _, writer, number in load.acknowledged}
    lost, doubled = sent - set(held), len(held) - len(set(held))
    print(
        f"{rounds} kills, {len(sent):,} acknowledged writes: longest gap {max(gaps):.2f} s, {len(lost)} lost, "
        f"{doubled} doubled, views {'right' if verdict.ok else 'WRONG'}; load average {os.getloadavg()[0]:.1f}"
    )
    return not lost and not doubled and verdict.ok and max(gaps) <= limit


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="Load before and after each kill.")
    given = parser.parse_args()
    sys.exit(0 if run(given.rounds, given.seconds) else 1)
