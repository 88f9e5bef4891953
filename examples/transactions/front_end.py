"""A stand-in for the front end and for the people at the desk, in a process of its own.

It sends users and transactions to Kafka with the ordinary client, so many a second, and asks the API for some of them
until they are there. What it sent, and how long each of these took, it writes to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer

USERS = 500
# One transaction of so many is waited for at the API.
WATCHED = 40
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0

Row = dict[str, Any]


def user(number: int, dice: random.Random) -> Row:
    """A user as the front end knows one."""
    tier = dice.choice(["basic", "plus", "gold"])
    return {"user_id": number, "name": f"User {number}", "email": f"user{number}@example.org", "tier": tier}


def transaction(number: int, dice: random.Random) -> Row:
    """A transaction of this moment."""
    return {
        "transaction_id": number,
        "user_id": dice.randrange(USERS),
        "amount": f"{dice.randrange(1, 100_000) / 100:.2f}",
        "currency": dice.choice(["EUR", "USD", "NOK"]),
        "merchant": f"merchant {dice.randrange(50)}",
        "status": "pending",
        "timestamp": datetime.now(UTC).isoformat(),
    }


class FrontEnd:
    """Sends, and remembers what it sent: of each key the last."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.users: dict[int, Row] = {}
        self.transactions: dict[int, Row] = {}

    def send_user(self, row: Row) -> None:
        """Tell of a user."""
        self.users[row["user_id"]] = row
        self._send("users", row["user_id"], row)

    def send_transaction(self, row: Row) -> None:
        """Tell of a transaction."""
        self.transactions[row["transaction_id"]] = row
        self._send("transactions", row["transaction_id"], row)

    def _send(self, topic: str, key: int, row: Row) -> None:
        self._producer.produce(topic, key=str(key), value=json.dumps(row))
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has all."""
        if self._producer.flush(60):
            raise SystemExit("Kafka did not take all that was sent")


async def main() -> None:
    """Send for some seconds, and write down what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--api", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    dice = random.Random(7)
    front = FrontEnd(chosen.bootstrap)
    for number in range(USERS):
        front.send_user(user(number, dice))
    front.flush()
    async with httpx.AsyncClient(base_url=chosen.api, timeout=30) as client:
        # The first of all finds out when everything has begun to flow.
        front.send_transaction(transaction(0, dice))
        await seen(client, front.transactions[0])
        delays = await send(front, client, dice, chosen.seconds, chosen.rate)
    front.flush()
    held = {"users": list(front.users.values()), "transactions": list(front.transactions.values()), "delays": delays}
    chosen.out.write_text(json.dumps(held))


async def send(
    front: FrontEnd, client: httpx.AsyncClient, dice: random.Random, seconds: float, rate: int
) -> list[float]:
    """Send transactions, and now and then a changed status or user; the seconds until some were in an answer."""
    watched: list[asyncio.Task[float]] = []
    begun, number = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        if number >= passed * rate:
            await asyncio.sleep(0.002)
            continue
        number += 1
        row = transaction(number, dice)
        front.send_transaction(row)
        if number % WATCHED == 0:
            watched.append(asyncio.create_task(seen(client, row)))
        if number % 10 == 0:
            old = front.transactions[dice.randrange(1, number + 1)]
            # Those that are waited for stay as they were sent.
            if old["transaction_id"] % WATCHED:
                front.send_transaction({**old, "status": dice.choice(["settled", "refused"])})
        if number % 100 == 0:
            front.send_user(user(dice.randrange(USERS), dice))
    return list(await asyncio.gather(*watched))


async def seen(client: httpx.AsyncClient, row: Row) -> float:
    """The seconds until the API tells of a transaction among the newest of its user."""
    begun = time.monotonic()
    while True:
        answer = await client.get(f"/transactions/user/{row['user_id']}", params={"limit": 20})
        if answer.status_code == 200 and any(
            one["transaction_id"] == row["transaction_id"] for one in answer.json()["data"]
        ):
            return time.monotonic() - begun
        if time.monotonic() - begun > _PATIENCE_SECONDS:
            raise SystemExit(f"transaction {row['transaction_id']} did not come: {answer.status_code} {answer.text}")
        await asyncio.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
