"""The generic change sequences S1 to S16, each a generator of steps over the tables that are given.

A generator reads the model while it runs: the model follows each step before the next one is drawn.
Steps touch all given tables at once, so that one epoch moves every input of every view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from tests.judge.model import Change, Changes, Model, delete, insert
from tests.judge.schemas import GROUP_COLUMN, TABLES, Row, Table
from tests.judge.steps import Step


@dataclass(frozen=True)
class Scene:
    """What a sequence works on: the model so far, the tables in play and the source of chance."""

    model: Model
    tables: tuple[Table, ...]
    rng: Random
    batches: int = 30
    size: int = 50

    def rows(self, table: Table) -> list[Row]:
        return self.model[table.name].rows()

    def some(self, table: Table, count: int) -> list[Row]:
        rows = self.rows(table)
        return self.rng.sample(rows, min(count, len(rows)))

    def fresh(self, table: Table, count: int) -> list[Row]:
        """New random rows; where there is a key, keys that are not in the table if any are left."""
        drawn: list[Row] = []
        taken = {_key(table, row) for row in self.rows(table)} if table.key else set[object]()
        for _ in range(count):
            row = table.random_row(self.rng)
            for _ in range(50):
                if not table.key or _key(table, row) not in taken:
                    break
                row = table.random_row(self.rng)
            if table.key:
                taken.add(_key(table, row))
            drawn.append(row)
        return drawn

    def every(self, make: Callable[[Table], list[Change]]) -> Changes:
        """The changes that `make` gives for each table; tables without any are left out."""
        made = {table.name: make(table) for table in self.tables}
        return {name: changes for name, changes in made.items() if changes}

    def fill(self, least: int = 12) -> Iterator[Step]:
        """A step that brings every table to at least so many rows, if one is needed."""
        changes = self.every(lambda t: inserts(self.fresh(t, max(0, least - len(self.rows(t))))))
        if changes:
            yield Step("fill", changes)


Sequence_: TypeAlias = Callable[[Scene], Iterator[Step]]


def inserts(rows: Sequence[Row]) -> list[Change]:
    return [insert(row) for row in rows]


def deletes(rows: Sequence[Row]) -> list[Change]:
    return [delete(row) for row in rows]


def replacement(table: Table, old: Row, new: Row) -> list[Change]:
    """The changes that turn one row into another: an insert over the key, or a delete and an insert."""
    if table.key:
        return [insert(new)]
    return [delete(old), insert(new)]


def _key(table: Table, row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in table.key)


def _key_only(table: Table, row: Row) -> Row:
    return {name: row[name] for name in table.key} if table.key else row


def s1(scene: Scene) -> Iterator[Step]:
    """Inserts only, five batches."""
    for number in range(5):
        yield Step(f"insert {number + 1}", scene.every(lambda t: inserts(scene.fresh(t, 6))))


def s2(scene: Scene) -> Iterator[Step]:
    """All rows of one group go, then return."""
    yield from scene.fill()
    gone: dict[str, list[Row]] = {}
    for table in scene.tables:
        rows, column = scene.rows(table), GROUP_COLUMN[table.name]
        group = scene.rng.choice(rows)[column]
        gone[table.name] = [row for row in rows if row[column] == group]
    yield Step("delete one group", {name: deletes(rows) for name, rows in gone.items()})
    yield Step("insert it again", {name: inserts(rows) for name, rows in gone.items()})


def s3(scene: Scene) -> Iterator[Step]:
    """Rows move to another group, join key or partition, and all their other columns follow."""
    yield from scene.fill()
    for note in ("move the group", "move every column"):
        changes: Changes = {}
        for table in scene.tables:
            for row in scene.some(table, 4):
                drawn = table.random_row(scene.rng, null_share=0.05)
                kept = {name: row[name] for name in table.key}
                column = GROUP_COLUMN[table.name]
                new = row | {column: drawn[column]} if note == "move the group" else drawn | kept
                changes.setdefault(table.name, []).extend(replacement(table, row, _valid(table, new)))
        yield Step(note, changes)


def s4(scene: Scene) -> Iterator[Step]:
    """One column of each table changes; views that do not read it must stay still."""
    yield from scene.fill()
    keyed = [table for table in scene.tables if table.key]
    for number in range(max((len(table.values) for table in keyed), default=0)):
        changes: Changes = {}
        only: dict[str, frozenset[str]] = {}
        for table in keyed:
            if number >= len(table.values):
                continue
            column = table.values[number]
            rows = [_valid(table, row | {column.name: column.draw(scene.rng)}) for row in scene.some(table, 4)]
            changes[table.name] = inserts(rows)
            only[table.name] = frozenset({column.name})
        yield Step(f"update of column {number + 1}", changes, only=only)


def s5(scene: Scene) -> Iterator[Step]:
    """Insert and delete of the same row in one batch: net zero."""
    yield from scene.fill()
    changes: Changes = {}
    for table in scene.tables:
        for row in scene.fresh(table, 3):
            if not table.key or scene.model[table.name].get(**_key_only(table, row)) is None:
                changes.setdefault(table.name, []).extend([insert(row), delete(_key_only(table, row))])
    yield Step("insert and delete of new rows", changes, still=True)
    old: Changes = {t.name: [c for r in scene.some(t, 3) for c in (delete(r), insert(r))] for t in scene.tables}
    yield Step("delete and insert of old rows", old, still=True)


def s6(scene: Scene) -> Iterator[Step]:
    """Delete, and the identical insert in the next batch."""
    yield from scene.fill()
    rows = {table.name: scene.some(table, 4) for table in scene.tables}
    yield Step("delete", {name: deletes(some) for name, some in rows.items()})
    yield Step("identical insert", {name: inserts(some) for name, some in rows.items()})


def s7(scene: Scene) -> Iterator[Step]:
    """Three inserts of one key in one batch: the last one wins."""
    yield from scene.fill()
    changes: Changes = {}
    for table in scene.tables:
        for row in scene.some(table, 2) + scene.fresh(table, 1):
            kept = {name: row[name] for name in table.key}
            rows = [_valid(table, table.random_row(scene.rng) | kept) for _ in range(3)]
            changes.setdefault(table.name, []).extend(inserts(rows))
    yield Step("three inserts of one key", changes)


def s8(scene: Scene) -> Iterator[Step]:
    """Delete of a key that is not there: nothing happens."""
    changes: Changes = {}
    for table in scene.tables:
        for row in scene.fresh(table, 3):
            if table.key and scene.model[table.name].get(**_key_only(table, row)) is None:
                changes.setdefault(table.name, []).append(delete(_key_only(table, row)))
    yield Step("delete of absent keys", changes, still=True)


def s9(scene: Scene) -> Iterator[Step]:
    """Empty batches."""
    yield Step("no tables", {}, still=True)
    yield Step("no changes", {table.name: [] for table in scene.tables}, still=True)


def s10(scene: Scene) -> Iterator[Step]:
    """Everything goes, then a start from nothing."""
    yield from scene.fill()
    yield Step("delete everything", scene.every(lambda t: deletes(scene.rows(t))))
    yield Step("first row", scene.every(lambda t: inserts(scene.fresh(t, 1))))
    yield Step("more rows", scene.every(lambda t: inserts(scene.fresh(t, 15))))


def s11(scene: Scene) -> Iterator[Step]:
    """All inputs change in one batch: inserts, deletes and moves together."""
    yield from scene.fill()
    for number in range(2):
        yield Step(f"all inputs {number + 1}", scene.every(lambda t: mixed(scene, t, 6)))


def s12(scene: Scene) -> Iterator[Step]:
    """A key or value goes from NULL to a value and back."""
    yield from scene.fill()
    chosen = {table.name: scene.some(table, 2) for table in scene.tables}
    now = {name: [dict(row) for row in rows] for name, rows in chosen.items()}
    for note in ("to NULL", "to a value", "to NULL again"):
        changes: Changes = {}
        for table in scene.tables:
            for index, old in enumerate(now[table.name]):
                drawn = table.random_row(scene.rng, null_share=0.0)
                new = dict(old)
                for column in table.values:
                    new[column.name] = drawn[column.name] if note == "to a value" else None
                new = _valid(table, new)
                changes.setdefault(table.name, []).extend(replacement(table, old, new))
                now[table.name][index] = new
        yield Step(note, changes)


def s13(scene: Scene) -> Iterator[Step]:
    """Late rows: keys and instants before all that are there."""
    yield from scene.fill()
    for number in range(2):
        changes: Changes = {}
        for table in scene.tables:
            row = table.random_row(scene.rng, null_share=0.0)
            for column in table.columns:
                seen = [r[column.name] for r in scene.rows(table) if r[column.name] is not None]
                if column.sql_type == "TIMESTAMP" and seen:
                    row[column.name] = min(seen).replace(second=0) - number * (max(seen) - min(seen))
                elif column.sql_type == "BIGINT" and column.name in table.key and seen:
                    row[column.name] = min(seen) - 1 - number
            changes[table.name] = inserts([_valid(table, row)])
        yield Step(f"late row {number + 1}", changes)


def s14(scene: Scene) -> Iterator[Step]:
    """A seeded random mix."""
    for number in range(scene.batches):
        share = max(1, scene.size // max(1, len(scene.tables)))
        sizes = {table.name: scene.rng.randint(0, 2 * share) for table in scene.tables}
        changes = scene.every(lambda t, sizes=sizes: mixed(scene, t, sizes[t.name]))
        yield Step(f"mix {number + 1}", changes, key=f"mix-{scene.rng.random()}", as_json=number % 3 == 2)


def s15(scene: Scene) -> Iterator[Step]:
    """Copies of one row: three more, then one less, three times."""
    bags = [table for table in scene.tables if not table.key]
    rows = {table.name: table.random_row(scene.rng, null_share=0.0) for table in bags}
    yield Step("three copies", {name: inserts([row] * 3) for name, row in rows.items()})
    for number in range(3):
        yield Step(f"one copy less {number + 1}", {name: deletes([row]) for name, row in rows.items()})


def s16(scene: Scene) -> Iterator[Step]:
    """A batch that is sent again under its key, also after the home was closed and opened."""
    yield from scene.fill()
    tag = scene.rng.random()
    yield Step("sent twice", scene.every(lambda t: mixed(scene, t, 4)), key=f"twice-{tag}", replay=True)
    yield Step(
        "sent again after reopening",
        scene.every(lambda t: mixed(scene, t, 4)),
        key=f"reopened-{tag}",
        replay=True,
        reopen=True,
    )


def mixed(scene: Scene, table: Table, count: int) -> list[Change]:
    """Random changes of one table that are valid in their order: some deletes name only the key."""
    rng = scene.rng
    rows = scene.rows(table)
    changes: list[Change] = []
    for _ in range(count):
        dice = rng.random()
        if dice < 0.4 or not rows:
            row = table.random_row(rng)
            changes.append(insert(row))
            if table.key:
                rows = [old for old in rows if _key(table, old) != _key(table, row)]
            rows.append(row)
            continue
        index = rng.randrange(len(rows))
        old = rows[index]
        if dice < 0.7:
            changes.append(delete(_key_only(table, old) if rng.random() < 0.5 else old))
            del rows[index]
        else:
            drawn = table.random_row(rng)
            names = [name for name in table.names if name not in table.key]
            picked = set(rng.sample(names, rng.randint(1, len(names))))
            new = _valid(table, {n: drawn[n] if n in picked else old[n] for n in table.names})
            changes.extend(replacement(table, old, new))
            rows[index] = new
    return changes


def _valid(table: Table, row: Row) -> Row:
    """The row with the promises of its table kept: nobody reports to someone of a later number."""
    if table.name == "emp" and row["mgr"] is not None and row["mgr"] >= row["eid"]:
        return row | {"mgr": None}
    return row


SEQUENCES: dict[str, Sequence_] = {
    function.__name__.upper(): function
    for function in (s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16)
}


def scene_for(
    model: Model, names: frozenset[str], seed: int, sequence: str, *, batches: int = 30, size: int = 50
) -> Scene:
    """The scene of one sequence; the same seed draws the same steps over the same model."""
    tables = tuple(TABLES[name] for name in TABLES if name in names)
    return Scene(model, tables, Random(f"{seed}-{sequence}"), batches, size)
