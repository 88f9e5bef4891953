"""Load for bench/api.py, in a process of its own: plain HTTP over kept connections, by asyncio and nothing else.

`capacity` asks as fast as answers come; `paced` at a rate that does not wait for answers, and counts from when a
request was due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from urllib.parse import urlsplit

USERS = 50_000


async def main() -> None:
    """Ask for some seconds, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="with {user} where the user's number stands")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0 asks as fast as answers come")
    chosen = parser.parse_args()
    seen: list[float] = []
    begun = time.perf_counter()
    due = iter_due(begun, chosen.rate, chosen.seconds)
    asking = [ask(chosen.url, begun + chosen.seconds, due, seen) for _ in range(chosen.connections)]
    await asyncio.gather(*asking)
    took = time.perf_counter() - begun
    seen.sort()
    cut = {name: seen[min(int(len(seen) * share), len(seen) - 1)] * 1000 for name, share in SHARES.items()}
    print(json.dumps({"requests": len(seen), "per_second": len(seen) / took, **cut}))


SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def iter_due(begun: float, rate: float, seconds: float) -> list[float]:
    """When requests are due, last first; none without a rate."""
    return [begun + number / rate for number in range(int(rate * seconds))][::-1] if rate else []


async def ask(url: str, until: float, due: list[float], seen: list[float]) -> None:
    """Ask over one connection."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    paced = bool(due)
    dice = random.Random(id(writer))
    path = f"{parts.path}{'?' + parts.query if parts.query else ''}"
    while (now := time.perf_counter()) < until and (due or not paced):
        began = due.pop() if paced else now
        if began > now:
            await asyncio.sleep(began - now)
        target = path.replace("{user}", str(dice.randrange(USERS)))
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode())
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        seen.append(time.perf_counter() - began)
        if b"amount" not in body:
            raise SystemExit(body.decode())
    writer.close()


if __name__ == "__main__":
    asyncio.run(main())
