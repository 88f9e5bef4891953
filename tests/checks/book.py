"""The book of checks: what each one sets up and what it then keeps doing.

A check knows nothing of crashes. Its n-th action depends on the seed, on n and on what the home must hold by then, so
that whoever has the number of acknowledged actions can work out all of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.changes import Change, delete, insert
from tests.checks.model import Action, Apply, Crowd, Model, Shape, Statement, Table

Manipulate = Callable[[Model, Random, int], Action]


@dataclass(frozen=True)
class Check:
    """Initialize by statements, manipulate action by action; validate is the same for all and lies in validate.py."""

    name: str
    tables: tuple[Shape, ...]
    initialize: tuple[Statement, ...]
    manipulate: Manipulate
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    drops: bool = False
    clock: bool = False

    def actions(self, seed: int) -> Iterator[tuple[Action, Model]]:
        """Every action with what the home must hold before it; the model moves on with the iteration."""
        model = Model({})
        shapes = {shape.name: shape for shape in self.tables}
        number = 0
        while True:
            if number < len(self.initialize):
                action: Action = self.initialize[number]
            else:
                action = self.manipulate(model, Random(f"{self.name}-{seed}-{number}"), number)
            yield action, model
            created = model.created(action)
            if created is not None:
                model.tables[created] = Table(shapes[created])
            model.follow(action)
            number += 1


def view(name: str, query: str, replace: bool = False) -> Statement:
    return Statement(f"CREATE {'OR REPLACE ' if replace else ''}VIEW {name} AS {query}", name, query)


def _buy(model: Model, rng: Random, number: int) -> Action:
    """Orders come, change and go; now and then a customer moves."""
    changes: dict[str, list[Change]] = {"orders": []}
    for identity in rng.sample(range(40), rng.randint(1, 6)):
        if rng.random() < 0.3:
            changes["orders"].append(delete(id=identity))
        else:
            row = {"customer": rng.randrange(6), "item": rng.choice("abcd"), "amount": rng.randrange(100)}
            changes["orders"].append(insert(id=identity, **row))
    if rng.random() < 0.4:
        changes["customers"] = [insert(id=rng.randrange(6), region=rng.choice(["north", "south"]))]
    return Apply(changes)


KEYED = Check(
    "keyed",
    (
        Shape("orders", ("id", "customer", "item", "amount"), ("id",)),
        Shape("customers", ("id", "region"), ("id",)),
    ),
    (
        Statement("CREATE TABLE orders (id INT PRIMARY KEY, customer INT, item STRING, amount INT)"),
        Statement("CREATE TABLE customers (id INT PRIMARY KEY, region STRING)"),
        view("sold", "SELECT o.id, c.region, o.amount FROM orders o JOIN customers c ON o.customer = c.id"),
        view(
            "per_item",
            "SELECT item, MIN(amount) AS least, MAX(amount) AS most, COUNT(DISTINCT customer) AS buyers "
            "FROM orders GROUP BY item",
        ),
        view(
            "best",
            "SELECT * FROM (SELECT id, customer, amount, "
            "ROW_NUMBER() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS place FROM orders) WHERE place <= 2",
        ),
    ),
    _buy,
)


def _fill_bag(model: Model, rng: Random, number: int) -> Action:
    """Few distinct rows in many copies, so that the same content is written over and over."""
    held = sorted(model.tables["bag"].rows().elements())
    gone = rng.sample(held, min(len(held), rng.randrange(4)))
    changes = [delete(a=a, s=s) for a, s in gone]
    changes.extend(insert(a=rng.randrange(3), s=rng.choice("xy")) for _ in range(rng.randint(1, 3)))
    return Apply({"bag": changes})


MULTISET = Check(
    "multiset",
    (Shape("bag", ("a", "s")),),
    (
        Statement("CREATE TABLE bag (a INT, s STRING)"),
        view("kinds", "SELECT DISTINCT a FROM bag"),
        view("copies", "SELECT a, s, COUNT(*) AS n FROM bag GROUP BY a, s"),
        view("twice", "SELECT s FROM bag WHERE a > 0"),
    ),
    _fill_bag,
)


def _arrive_late(model: Model, rng: Random, number: int) -> Action:
    """Changes with an age of their own; a part is older than what is held, or than the deletion."""
    changes: list[Change] = []
    for identity in rng.sample(range(12), rng.randint(1, 4)):
        at = max(number - rng.choice((0, 0, 0, 3, 9)), 0) * 10_000 + number
        if rng.random() < 0.4:
            changes.append(delete(id=identity, at=at))
        else:
            changes.append(insert(id=identity, v=rng.randrange(50), at=at))
    return Apply({"readings": changes})


SEQUENCED = Check(
    "sequenced",
    (Shape("readings", ("id", "v", "at"), ("id",), "at"),),
    (
        Statement("CREATE TABLE readings (id INT PRIMARY KEY, v INT, at INT NOT NULL) SEQUENCE BY at"),
        view("spread", "SELECT id % 3 AS part, MIN(v) AS low, MAX(v) AS high, COUNT(*) AS n FROM readings GROUP BY 1"),
    ),
    _arrive_late,
)

_SHAPES_OF_A_VIEW = (
    "SELECT g, SUM(v) AS x FROM facts GROUP BY g",
    "SELECT g, CAST(MAX(v) AS BIGINT) AS x FROM facts GROUP BY g",
    "SELECT g, COUNT(DISTINCT v) AS x FROM facts GROUP BY g",
)


def _redefine(model: Model, rng: Random, number: int) -> Action:
    """Changes, with definitions between: a view is replaced under another, one comes and goes, the table grows."""
    pick = rng.random()
    columns = model.tables["facts"].shape.columns
    if pick < 0.05 and len(columns) < 8:
        return Statement(f"ALTER TABLE facts ADD COLUMN n{number} INT", column=("facts", f"n{number}"))
    if pick < 0.2:
        return view("ground", rng.choice(_SHAPES_OF_A_VIEW), replace=True)
    if pick < 0.4 and "guest" in model.views:
        return Statement("DROP VIEW guest", "guest")
    if pick < 0.45 or (pick < 0.7 and "guest" not in model.views):
        # With other columns each time, so that what is left of its namesake must not be taken for it.
        shown = rng.choice(["id, g", "id, v", "g, v, id"])
        return view("guest", f"SELECT {shown} FROM facts WHERE v % 2 = 0", replace="guest" in model.views)
    changes = [
        insert(id=rng.randrange(20), g=rng.choice("abc"), **{name: rng.randrange(9) for name in columns[2:]})
        for _ in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.5:
        changes.append(delete(id=rng.randrange(20)))
    return Apply({"facts": changes})


DEFINITIONS = Check(
    "definitions",
    (Shape("facts", ("id", "g", "v"), ("id",)),),
    (
        Statement("CREATE TABLE facts (id INT PRIMARY KEY, g STRING, v INT)"),
        view("ground", _SHAPES_OF_A_VIEW[0]),
        view("above", "SELECT g, x FROM ground WHERE x > 5"),
    ),
    _redefine,
    drops=True,
)


def _load_much(model: Model, rng: Random, number: int) -> Action:
    """Batches that do not fit into a row of the ledger, next to some that do."""
    if rng.random() < 0.3:
        return Apply({"bulk": [insert(id=rng.randrange(500), g=rng.randrange(5), note="small")]})
    first, count = rng.randrange(400), rng.randint(50, 150)
    note = f"{number}-" + "n" * 20
    changes = [insert(id=first + i, g=(first + i) % 5, note=note) for i in range(count)]
    changes.extend(delete(id=identity) for identity in rng.sample(range(500), 40))
    return Apply({"bulk": changes})


LARGE = Check(
    "large",
    (Shape("bulk", ("id", "g", "note"), ("id",)),),
    (
        Statement("CREATE TABLE bulk (id INT PRIMARY KEY, g INT, note STRING)"),
        view("sizes", "SELECT g, COUNT(*) AS n, MAX(id) AS last FROM bulk GROUP BY g"),
        view("noted", "SELECT id, note FROM bulk WHERE g = 1"),
    ),
    _load_much,
    {"inline_bytes": 600},
)


def _count_up(model: Model, rng: Random, number: int) -> Action:
    return Apply(
        {"counts": [insert(id=rng.randrange(5), n=number), insert(id=5 + rng.randrange(5), n=rng.randrange(9))]}
    )


RETENTION = Check(
    "retention",
    (Shape("counts", ("id", "n"), ("id",)),),
    (
        Statement("CREATE TABLE counts (id INT PRIMARY KEY, n INT)"),
        view("sums", "SELECT id % 2 AS side, SUM(n) AS n FROM counts GROUP BY 1"),
    ),
    _count_up,
    {"keep_epochs": 6},
)

# A Delta table of two versions: 20 rows, then 40; the note tells the version that a row came with.
_SNAPSHOT = Path(__file__).parents[1] / "fixtures" / "snapshot"


def _backfill(model: Model, rng: Random, number: int) -> Action:
    """Snapshots are read into a table that changes go on in; sources are dropped, and read again under their names."""
    pick, name = rng.random(), rng.choice(["first", "second"])
    if pick < 0.3 and name in model.sources:
        return Statement(f"DROP SOURCE {name}", source=name)
    if pick < 0.6 and name not in model.sources:
        version = rng.randrange(2)
        options = f"mode = 'snapshot', version = {version}"
        rows = [insert(id=i, g=i % 4, note=f"version {i // 20}") for i in range(20 * (version + 1))]
        return Statement(
            f"CREATE SOURCE {name} INTO stock FROM DELTA '{_SNAPSHOT}' WITH ({options})",
            source=name,
            brought=("stock", rows),
        )
    changes = [insert(id=rng.randrange(50), g=rng.randrange(4), note=f"change {number}") for _ in range(3)]
    changes.extend(delete(id=identity) for identity in rng.sample(range(50), 10))
    return Apply({"stock": changes})


SOURCES = Check(
    "sources",
    (Shape("stock", ("id", "g", "note"), ("id",)),),
    (
        Statement("CREATE TABLE stock (id INT PRIMARY KEY, g INT, note STRING)"),
        view("counts", "SELECT g, COUNT(*) AS n, MAX(note) AS last FROM stock GROUP BY g"),
    ),
    _backfill,
    {"inline_bytes": 600, "keep_epochs": 6},
)


def _crowd(model: Model, rng: Random, number: int) -> Action:
    """Callers at the same time, each with tickets of its own; some take theirs back."""
    calls: list[Apply] = []
    for caller in rng.sample(range(8), rng.randint(2, 5)):
        places = rng.sample(range(5), rng.randint(1, 3))
        tickets = [insert(caller=caller, place=place, price=rng.randrange(60)) for place in places]
        if rng.random() < 0.4:
            tickets.append(delete(caller=caller, place=rng.choice(places)))
        calls.append(Apply({"tickets": tickets, "seen": [insert(caller=caller, number=number)]}))
    return Crowd(tuple(calls))


CALLERS = Check(
    "callers",
    (
        Shape("tickets", ("caller", "place", "price"), ("caller", "place")),
        Shape("seen", ("caller", "number")),
    ),
    (
        Statement("CREATE TABLE tickets (caller INT, place INT, price INT, PRIMARY KEY (caller, place))"),
        Statement("CREATE TABLE seen (caller INT, number INT)"),
        view("spent", "SELECT caller, SUM(price) AS spent, MAX(price) AS most FROM tickets GROUP BY caller"),
        view("visits", "SELECT s.caller, COUNT(*) AS visits FROM seen s JOIN spent p USING (caller) GROUP BY s.caller"),
        # Nothing can be told of an epoch that the clock may have made, so the view that makes such epochs comes last.
        view("on_time", "SELECT caller, place FROM tickets WHERE price < unix_seconds(now()) % 60"),
    ),
    _crowd,
    clock=True,
)

CHECKS = (KEYED, MULTISET, SEQUENCED, DEFINITIONS, LARGE, RETENTION, SOURCES, CALLERS)


def together(name: str, *checks: Check) -> Check:
    """One check that does what all of these do, in one home."""
    settings: dict[str, Any] = {}
    for check in checks:
        settings.update(check.settings)

    def manipulate(model: Model, rng: Random, number: int) -> Action:
        return rng.choice(checks).manipulate(model, rng, number)

    return Check(
        name,
        tuple(shape for check in checks for shape in check.tables),
        tuple(statement for check in checks for statement in check.initialize),
        manipulate,
        settings,
        any(check.drops for check in checks),
        any(check.clock for check in checks),
    )


def _narrow(check: Check, *views: str) -> Check:
    """A check with some of its views only, which opens sooner."""
    kept = tuple(one for one in check.initialize if one.view is None or one.view in views)
    return replace(check, initialize=kept)


SAMPLE = together(
    "sample",
    _narrow(KEYED, "sold", "per_item"),
    _narrow(MULTISET),
    _narrow(SEQUENCED),
    _narrow(DEFINITIONS, "ground"),
    _narrow(LARGE),
    replace(_narrow(SOURCES), settings={}),
)
BY_NAME = {check.name: check for check in (*CHECKS, SAMPLE)}
