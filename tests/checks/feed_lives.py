"""One life of a home with feeds: a process that changes tables, pauses, alters and tells anew, until it is killed."""

from __future__ import annotations

import logging
import os
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from tests.checks.feed_places import LARGE, Addresses, Place, places_of, plug_in
from tests.checks.jvm import Address, attach

_KEYS = 8
# The options that may change without a change of the events, with some of their values.
_ALTERED = {
    "batch_size": range(1, 30),
    "flush_interval_ms": (0, 5, 50, 200),
    "max_retries": range(5),
    "resolved": ("true", "'20ms'"),
    "on_error": ("'fail'", "'pause'"),
    "retention_epochs": (10_000, 100_000),
}
_VIEW = "CREATE VIEW IF NOT EXISTS v AS SELECT s, count(*) AS c, sum(n) AS total FROM t GROUP BY s"


@dataclass(frozen=True)
class Life:
    """What one process is to do."""

    folder: Path
    # None for a home of tables alone, which opens in no time.
    spark: Address | None
    seed: int
    number: int
    last: bool = False
    # How long an owner may be silent before another takes its place.
    timeout: float = 30.0
    idle: float = 0.0
    # Whether an owner woke up that another had replaced: what it had under way then arrives late, which no receiver
    # is fooled by that compares sequences.
    late: bool = False
    servers: Addresses = field(default_factory=Addresses)

    @property
    def places(self) -> list[Place]:
        return places_of(self.folder, self.servers, self.spark is not None)


def live(life: Life, parent: Connection) -> None:
    """Live one life, and tell the parent how it ended."""
    try:
        _live(life, parent)
    except BaseException:
        parent.send({"fault": traceback.format_exc()})


def _live(life: Life, parent: Connection) -> None:
    from headrace.feeds import blocked
    from tests.checks.feed_judge import judged

    plug_in(life.folder, life.servers)
    blocked._FIRST_PAUSE, blocked._LONGEST_PAUSE = 0.02, 0.2  # pyright: ignore[reportPrivateUsage]
    os.environ["TMPDIR"] = str(life.folder)
    logging.disable(logging.ERROR)
    dice = Random(life.seed * 1000 + life.number)
    hr = _opened(life)
    for place in life.places:
        hr.execute(
            f"CREATE CHANGEFEED IF NOT EXISTS {place.name} FOR TABLE {place.relation} INTO {place.sink} "
            f"'{place.location}' WITH (flush_interval_ms = {dice.choice([0, 5, 50])}, "
            f"batch_size = {dice.choice([1, 3, 20])}, resolved = true, max_retries = 2{place.options})"
        )
    parent.send({"ready": os.getpid()})
    if life.last:
        parent.send({"done": judged(hr, life)})
    else:
        for _ in range(dice.randrange(6, 20)):
            _act(hr, life, dice)
        time.sleep(life.idle)
        parent.send({"ended": True})
    hr.close()


def _opened(life: Life) -> Any:
    """The home, with its relations."""
    if life.spark is None:
        from pyspark.sql.types import IntegerType, StringType, StructField, StructType

        from tests.bare_home import BareHome

        bare = BareHome(life.folder / "home", life.timeout)
        number, text = IntegerType(), StringType()
        columns = [StructField("id", number, False), StructField("n", number), StructField("s", text)]
        bare.create_table("t", StructType(columns), ("id",))
        bare.create_table("b", StructType([StructField("x", number), StructField("y", text)]))
        bare.create_table("u", StructType([StructField("id", number, False), StructField("login", text)]), ("id",))
        return bare
    import headrace

    spark: Any = attach(life.spark)
    settings = headrace.Settings(owner_timeout=life.timeout)  # pyright: ignore[reportArgumentType]
    hr = headrace.open(str(life.folder / "home"), spark=spark, settings=settings)
    hr.execute("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, n INT, s STRING)")
    hr.execute(_VIEW)
    return hr


def _act(hr: Any, life: Life, dice: Random) -> None:
    """One random step."""
    feed = dice.choice(life.places).name
    match dice.choices(
        ["change", "mood", "pause", "resume", "alter", "resync", "columns", "replace", "wait"],
        [30, 6, 3, 5, 3, 1, 1, 1, 4],
    )[0]:
        case "change":
            more = {} if life.spark else {"b": _bag_changes(hr, dice), "u": _login_changes(hr, dice)}
            hr.apply({"t": _changes(hr, dice), **more})
        case "mood":
            set_mood(life, feed, dice.choice(["well", "well", "fails", "slow", "down", "refuses"]))
        case "pause":
            hr.execute(f"PAUSE CHANGEFEED {feed}")
        case "resume":
            hr.execute(f"RESUME CHANGEFEED {feed}")
        case "alter":
            option = dice.choice(list(_ALTERED))
            hr.execute(f"ALTER CHANGEFEED {feed} SET ({option} = {dice.choice(_ALTERED[option])})")
        case "resync":
            hr.execute(f"RESYNC CHANGEFEED {feed}")
        case "columns" if life.spark is None:
            # With Spark there is a view that reads it, and so it keeps its name.
            hr.execute(f"ALTER TABLE t RENAME COLUMN {_text_column(hr)} TO s{dice.randrange(10**6)}")
        case "replace" if life.spark is None:
            columns = hr.core.catalog.table("b").schema
            hr.replace_table("b", columns)
        case "replace":
            hr.execute(
                "CREATE OR REPLACE VIEW v AS SELECT s, count(*) AS c, sum(n) AS total, max(n) AS m FROM t GROUP BY s"
            )
        case _:
            time.sleep(dice.uniform(0, 0.1))


def set_mood(life: Life, feed: str, mood: str) -> None:
    """Have the receiver of a feed be so from now on."""
    (life.folder / f"{feed}.mood").write_text(mood)
    if feed == "postgres" and life.spark is None:
        from tests.checks.feed_servers import set_wanted

        set_wanted(life.servers, mood != "refuses")


def _changes(hr: Any, dice: Random) -> list[dict[str, Any]]:
    """Changes of a table with a key, now and then one that is too large for a message of Kafka."""
    changes: dict[int, dict[str, Any]] = {}
    for _ in range(dice.randrange(1, 9)):
        key = dice.randrange(_KEYS)
        row = {"id": key, "n": dice.randrange(6), "s": LARGE if dice.random() < 0.01 else dice.choice("abc")}
        changes[key] = {"delete": {"id": key}} if dice.random() < 0.25 else {"insert": row}
    text = _text_column(hr)
    return [
        {kind: {text if name == "s" else name: value for name, value in row.items()}}
        for one in changes.values()
        for kind, row in one.items()
    ]


def _text_column(hr: Any) -> str:
    """The name that the column has by now which was s at first."""
    return next(name for name in hr.query("SELECT * FROM t").column_names if name.startswith("s"))


def _bag_changes(hr: Any, dice: Random) -> list[dict[str, Any]]:
    """Changes of a table without a key: rows come again and again, and one that is there goes."""
    held = hr.query("SELECT * FROM b").to_pylist()
    gone = [{"delete": dice.choice(held)}] if held and dice.random() < 0.5 else []
    rows = [{"x": dice.randrange(3), "y": dice.choice("ab")} for _ in range(dice.randrange(1, 4))]
    return [*gone, *({"insert": row} for row in rows)]


def _login_changes(hr: Any, dice: Random) -> list[dict[str, Any]]:
    """Changes of a table whose rows hand a unique column on: some swap it, some go, and some come with a free one."""
    held = {row["id"]: row["login"] for row in hr.query("SELECT * FROM u").to_pylist()}
    movers = dice.sample(sorted(held), dice.randrange(len(held) + 1))
    logins = [held[key] for key in movers]
    dice.shuffle(logins)
    rows: dict[int, str | None] = dict(zip(movers, logins, strict=True))
    if held and dice.random() < 0.4:
        rows[dice.choice(sorted(held))] = None
    free = sorted({f"l{number}" for number in range(_KEYS)}.difference({**held, **rows}.values()))
    missing = sorted(set(range(_KEYS)).difference(held))
    if free and missing:
        rows[dice.choice(missing)] = dice.choice(free)
    return [
        {"delete": {"id": key}} if login is None else {"insert": {"id": key, "login": login}}
        for key, login in rows.items()
    ]
