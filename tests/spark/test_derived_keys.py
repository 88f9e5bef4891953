"""The derived keys of joins, as Spark plans them: as expected, and unique in random rows."""

from __future__ import annotations

import random
from typing import Any

from headrace.face import home_of

# The query of each view, and its key.
QUERIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "one_join": ("SELECT l.id, name, fee FROM loans l JOIN members m ON m.id = l.member", ("id",)),
    "comma": ("SELECT name, l.id AS loan FROM loans l, members m WHERE m.id = l.member AND fee > 2", ("loan",)),
    "left_join": ("SELECT l.id, name FROM loans l LEFT JOIN members m ON m.id = l.member", ("id",)),
    "right_join": ("SELECT l.id, name FROM members m RIGHT JOIN loans l ON m.id = l.member", ("id",)),
    "other_side": ("SELECT l.id, name FROM members m LEFT JOIN loans l ON m.id = l.member", ()),
    "full_join": ("SELECT l.id, name FROM loans l FULL JOIN members m ON m.id = l.member", ()),
    "many": ("SELECT l.id, m.id AS m FROM loans l JOIN members m ON m.town = l.member", ()),
    "null_safe": ("SELECT l.id, m.id AS m FROM loans l JOIN members m ON m.id <=> try_cast(l.fee AS INT)", ()),
    "two_joins": (
        "SELECT l.id, t.name FROM loans l JOIN members m ON m.id = l.member LEFT JOIN towns t ON t.id = m.town",
        ("id",),
    ),
    "part_of_a_key": ("SELECT l.id, s.n FROM loans l JOIN seats s ON s.a = l.member", ()),
    "whole_key": ("SELECT l.id, s.n FROM loans l JOIN seats s ON s.a = l.member AND s.b = l.fee", ("id",)),
    "wider": ("SELECT l.id, t.name FROM loans l JOIN towns t ON t.id = l.member", ("id",)),
    "over_a_view": ("SELECT o.id, t.name FROM one_join o JOIN towns t ON t.id = o.fee", ("id",)),
    "groups": (
        "SELECT l.id, n FROM loans l JOIN (SELECT town, count(*) AS n FROM members GROUP BY town) g ON g.town = l.fee",
        ("id",),
    ),
    "exists_one": ("SELECT id FROM loans l WHERE EXISTS (SELECT 1 FROM members m WHERE m.town = l.member)", ("id",)),
    "itself": ("SELECT a.id, b.fee FROM loans a JOIN loans b ON b.id = a.member", ("id",)),
    "no_key": ("SELECT l.member, name FROM loans l JOIN members m ON m.id = l.member", ()),
}


def changes(dice: random.Random, columns: tuple[str, ...], keys: int) -> list[dict[str, Any]]:
    """Random rows of few different values, and deletes of some."""
    found: list[dict[str, Any]] = []
    for _ in range(12):
        row = {name: dice.choice([None, *range(6)]) for name in columns} | {
            name: dice.randrange(6) for name in columns[:keys]
        }
        is_delete = dice.random() < 0.25
        found.append({"delete": {name: row[name] for name in columns[:keys]}} if is_delete else {"insert": row})
    return found


def test_the_derived_key_of_a_join_is_unique(home: Any) -> None:
    home.execute("CREATE TABLE loans (id INT PRIMARY KEY, member INT, fee INT)")
    home.execute("CREATE TABLE members (id INT PRIMARY KEY, town INT, name INT)")
    home.execute("CREATE TABLE towns (id BIGINT PRIMARY KEY, name INT)")
    home.execute("CREATE TABLE seats (a INT, b INT, n INT, PRIMARY KEY (a, b))")
    for name, (query, _) in QUERIES.items():
        home.execute(f"CREATE VIEW {name} AS {query}")
    catalog = home_of(home).core.catalog
    assert {name: catalog.view(name).key for name in QUERIES} == {name: key for name, (_, key) in QUERIES.items()}
    dice = random.Random(11)
    for _ in range(6):
        tables = {"loans": ("id", "member", "fee"), "members": ("id", "town", "name"), "towns": ("id", "name")}
        rows = {name: changes(dice, columns, 1) for name, columns in tables.items()}
        home.apply({**rows, "seats": changes(dice, ("a", "b", "n"), 2)})
        for name, (_, key) in QUERIES.items():
            held = home.query(f"SELECT * FROM {name}").select(list(key)).to_pylist() if key else []
            assert len({tuple(row.values()) for row in held}) == len(held), name
    home.apply({"loans": [{"insert": {"id": 1, "member": 1}}], "members": [{"insert": {"id": 1, "name": 1}}]})
    home.execute("UPDATE members SET name = 2 WHERE id = 1")
    told = home.changes("one_join", since=home.epoch - 1).select(["id", "_change_type"]).to_pylist()
    assert {tuple(one.values()) for one in told} >= {(1, "update_preimage"), (1, "update_postimage")}
    assert home.verify().ok
