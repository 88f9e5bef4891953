"""Random valid views over the judge's tables, covering every operator.

The results do not depend on the order of rows: windows and limits are ordered by all columns at last.
Spark analyses each view, and one that it refuses is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from pyspark.sql.types import StructType

from tests.judge.oracle import SPARK_ERRORS
from tests.judge.terms import ORDERED, WOBBLY, Col, Terms, columns_of, order_terms

TRIES = 40


class NoFit(Exception):
    """A draw that came to nothing, such as a join of relations without a common kind."""


@dataclass(frozen=True)
class Source:
    """A FROM item and the columns in reach through it."""

    sql: str
    cols: list[Col]


class Grammar:
    """Draws views; knows the relations that they may read, and asks Spark for the types of the rest."""

    def __init__(
        self,
        rng: Random,
        schema_of: Callable[[str], StructType],
        relations: Mapping[str, frozenset[str]],
    ) -> None:
        self.rng = rng
        self.terms = Terms(rng)
        self.constants = self.terms.constants
        self.schema_of = schema_of
        # Each relation with the tables below it; a table is below itself.
        self.relations = dict(relations)
        self.used: set[str] = set()
        self._aliases = 0

    def view(self, depth: int = 2) -> tuple[str, frozenset[str]]:
        """The SQL of a view that Spark accepts, and the tables below it."""
        for _ in range(TRIES):
            self.used = set()
            self._aliases = 0
            try:
                sql = self.query(depth)
                self.schema_of(sql)
            except (NoFit, *SPARK_ERRORS):
                continue
            return sql, frozenset[str]().union(*(self.relations[name] for name in self.used))
        raise RuntimeError(f"no valid view in {TRIES} draws")

    def query(self, depth: int) -> str:
        shapes: list[tuple[int, Callable[[int], str]]] = [
            (3, self.plain),
            (4, self.joined),
            (5, self.grouped),
            (4, self.windowed),
            (3, self.set_operation),
            (3, self.by_subquery),
            (2, self.first_rows),
            (1, self.exploded),
            (2, self.top_of_each),
            (2, self.with_names),
            (1, self.lateral),
            (1, self.with_constants),
        ]
        weights = [weight for weight, _ in shapes]
        shape = self.rng.choices([shape for _, shape in shapes], weights)[0]
        return shape(depth)

    # Sources

    def alias(self) -> str:
        self._aliases += 1
        return f"a{self._aliases}"

    def relation(self, *, of: str | None = None) -> Source:
        """A table or an earlier view."""
        name = of or self.rng.choice(list(self.relations))
        self.used.add(name)
        alias = self.alias()
        cols = columns_of(self.schema_of(f"SELECT * FROM {name}"), alias)
        if not order_terms(cols):
            raise NoFit
        return Source(f"{name} {alias}", cols)

    def derived(self, sql: str) -> Source:
        alias = self.alias()
        cols = columns_of(self.schema_of(sql), alias)
        if not order_terms(cols):
            raise NoFit
        return Source(f"({sql}) {alias}", cols)

    def source(self, depth: int) -> Source:
        if depth > 0 and self.rng.random() < 0.35:
            return self.derived(self.query(depth - 1))
        if self.constants.seldom(0.04):
            return self.written()
        if self.constants.seldom(0.03):
            return self.derived(self.constants.nothing(self.relation().sql))
        return self.relation()

    def written(self) -> Source:
        """Rows that the query itself holds."""
        alias = self.alias()
        kinds = {"i": "int", "s": "string", "b": "bool"}
        return Source(self.constants.rows(alias), [Col(f"{alias}.{name}", kind) for name, kind in kinds.items()])

    def inputs(self, depth: int) -> Source:
        """One source or a join of two, for what stands above."""
        return self.join(depth) if self.rng.random() < 0.3 else self.source(depth)

    def join(self, depth: int, kinds: tuple[str, ...] = ("INNER", "LEFT", "RIGHT", "FULL", "CROSS")) -> Source:
        """Two or three sources joined; after a semi or anti join only the left columns are in reach."""
        whole = self.source(depth)
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            right = self.source(depth - 1)
            kind = self.rng.choice(kinds)
            if kind == "CROSS":
                kind = "INNER" if self.rng.random() < 0.7 else kind
            if kind == "CROSS":
                whole = Source(f"{whole.sql} CROSS JOIN {right.sql}", whole.cols + right.cols)
                continue
            cols = whole.cols + right.cols
            condition = self.equality(whole, right)
            if self.rng.random() < 0.3:
                condition += f" AND {self.terms.predicate(cols, 1)}"
            elif self.rng.random() < 0.1:
                condition = self.theta(whole, right)
            elif self.rng.random() < 0.1 and (number := self.terms.of(cols, "int")):
                condition += f" AND {number.ref} < {self.whole_count()}"
            elif self.constants.seldom():
                word = self.rng.choice(("AND", "OR"))
                condition = self.rng.choice(
                    (self.constants.condition(), f"{condition} {word} {self.constants.condition()}")
                )
            elif self.constants.seldom():
                col = self.pair(whole, right)[1]
                condition = f"{col.ref} {self.rng.choice(('=', '<=>'))} {self.constants.value(col.kind)}"
            reach = whole.cols if kind in ("LEFT SEMI", "LEFT ANTI") else cols
            whole = Source(f"{whole.sql} {kind} JOIN {right.sql} ON {condition}", reach)
        return whole

    def pair(self, left: Source, right: Source) -> tuple[Col, Col]:
        """Columns of one kind on two sides."""
        shared = {c.kind for c in left.cols} & {c.kind for c in right.cols} & (ORDERED - {"array", "double"})
        if not shared:
            raise NoFit
        # Numbers meet more often than strings and instants of different tables.
        kind = "int" if "int" in shared and self.rng.random() < 0.6 else self.rng.choice(sorted(shared))
        one, other = self.terms.of(left.cols, kind), self.terms.of(right.cols, kind)
        assert one is not None
        assert other is not None
        return one, other

    def equality(self, left: Source, right: Source) -> str:
        one, other = self.pair(left, right)
        sign = "<=>" if self.rng.random() < 0.15 else "="
        if one.kind == "string" and self.rng.random() < 0.2:
            return f"lower({one.ref}) {sign} lower({other.ref})"
        if one.kind == "int" and self.rng.random() < 0.15:
            return f"pmod({one.ref}, 4) {sign} {other.ref}"
        both = f"{one.ref} {sign} {other.ref}"
        if self.rng.random() < 0.2:
            two, second = self.pair(left, right)
            return f"{both} AND {two.ref} = {second.ref}"
        return both

    def theta(self, left: Source, right: Source) -> str:
        one, other = self.pair(left, right)
        if one.kind == "int" and self.rng.random() < 0.4:
            return f"{one.ref} + {other.ref} = 10"
        return f"{one.ref} {self.rng.choice(('<', '>', '<>'))} {other.ref}"

    # Shapes

    def select_list(self, cols: list[Col], count: int | None = None) -> str:
        some = count or self.rng.randint(1, 4)
        return ", ".join(f"{self.terms.scalar(cols)} AS c{i}" for i in range(some))

    def where(self, cols: list[Col], share: float = 0.5) -> str:
        return f" WHERE {self.terms.predicate(cols)}" if self.rng.random() < share else ""

    def plain(self, depth: int) -> str:
        source = self.source(depth)
        distinct = "DISTINCT " if self.rng.random() < 0.35 else ""
        selected = self.select_list(source.cols)
        return f"SELECT {distinct}{selected} FROM {source.sql}{self.where(source.cols, 0.8)}"

    def joined(self, depth: int) -> str:
        source = self.join(depth, ("INNER", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "LEFT SEMI", "LEFT ANTI"))
        distinct = "DISTINCT " if self.rng.random() < 0.15 else ""
        selected = self.select_list(source.cols)
        return f"SELECT {distinct}{selected} FROM {source.sql}{self.where(source.cols, 0.4)}"

    def grouped(self, depth: int) -> str:
        source = self.inputs(depth)
        keys = [self.key(source.cols) for _ in range(self.rng.choice((0, 1, 1, 1, 2, 2, 3)))]
        keys = list(dict.fromkeys(keys))
        selected = [f"{key} AS c{i}" for i, key in enumerate(keys)]
        for number in range(self.rng.randint(0 if keys else 1, 3)):
            call, wobbly = self.terms.aggregate(source.cols)
            selected.append(f"{call} AS {WOBBLY if wobbly else 'g'}{number}")
        if self.rng.random() < 0.15:
            whole = self.whole_count()
            selected.append(self.rng.choice((f"count(*) + {whole} AS q", f"sum({whole}) AS q", f"{whole} AS q")))
        having = ""
        if self.rng.random() < 0.25:
            number = self.terms.of(source.cols, "int")
            bound = self.rng.choice((f"count(*) > {self.rng.randint(1, 3)}", "count(*) < 4"))
            having = f" HAVING {f'sum({number.ref}) > 3' if number and self.rng.random() < 0.4 else bound}"
        elif self.constants.seldom():
            having = self.rng.choice((" HAVING ", " HAVING count(*) > 1 OR ")) + self.constants.condition()
        return (
            f"SELECT {', '.join(selected)} FROM {source.sql}{self.where(source.cols, 0.4)}{self.group_by(keys)}{having}"
        )

    def whole_count(self) -> str:
        """One number of a whole relation, which may stand anywhere."""
        return f"(SELECT count(*) FROM {self.relation().sql})"

    def key(self, cols: list[Col]) -> str:
        if self.constants.seldom(0.08):
            return self.constants.key(self.constants.kind())
        usable = [col for col in cols if col.kind != "map"]
        for _ in range(20):
            key = self.terms.scalar(usable, self.rng.choice((0, 0, 1)))
            if "CASE" not in key:
                return key
        return usable[0].ref

    def group_by(self, keys: list[str]) -> str:
        if not keys:
            return ""
        listed = ", ".join(keys)
        dice = self.rng.random()
        if len(keys) < 2 or dice < 0.7:
            return f" GROUP BY {listed}"
        if dice < 0.8:
            return f" GROUP BY ROLLUP ({listed})"
        if dice < 0.9:
            return f" GROUP BY CUBE ({listed})"
        return f" GROUP BY GROUPING SETS (({keys[0]}), ({', '.join(keys[1:])}), ())"

    def windowed(self, depth: int) -> str:
        source = self.inputs(depth)
        selected = [f"{col.ref} AS c{i}" for i, col in enumerate(self.sample(source.cols, 3))]
        numbered = False
        for number in range(self.rng.randint(1, 2)):
            call, tells = self.terms.window_call(source.cols)
            # Two numberings of equal rows could be paired either way, so there is at most one.
            if not (tells and numbered):
                selected.append(f"{call} AS n{number}")
            numbered = numbered or tells
        return f"SELECT {', '.join(selected)} FROM {source.sql}{self.where(source.cols, 0.3)}"

    def sample(self, cols: list[Col], most: int) -> list[Col]:
        return self.rng.sample(cols, min(len(cols), self.rng.randint(1, most)))

    def top_of_each(self, depth: int) -> str:
        source = self.source(depth)
        keys = [col.ref for col in source.cols if col.kind in ("int", "string", "bool", "date")]
        if not keys:
            raise NoFit
        first = self.rng.choice(order_terms(source.cols))
        total = ", ".join(order_terms(source.cols))
        selected = ", ".join(f"{col.ref} AS c{i}" for i, col in enumerate(self.sample(source.cols, 3)))
        ordering = self.rng.choice(("", " DESC", " NULLS LAST", " DESC NULLS FIRST"))
        rank = self.rng.choice(
            (
                f"row_number() OVER (PARTITION BY {keys[0]} ORDER BY {first}{ordering}, {total})",
                f"rank() OVER (PARTITION BY {keys[0]} ORDER BY {first}{ordering})",
                f"dense_rank() OVER (PARTITION BY {keys[0]} ORDER BY {first}{ordering})",
            )
        )
        inner = f"SELECT {selected}, {rank} AS n FROM {source.sql}{self.where(source.cols, 0.2)}"
        alias = self.alias()
        limit = self.rng.choice((f"{alias}.n <= 3", f"{alias}.n < 3", f"{alias}.n = 1", f"2 >= {alias}.n"))
        return f"SELECT * FROM ({inner}) {alias} WHERE {limit}"

    def set_operation(self, depth: int) -> str:
        word = self.rng.choice(
            ("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "UNION ALL")
        )
        left, right = self.source(depth), self.source(depth)
        pairs = [self.pair(left, right) for _ in range(self.rng.randint(1, 2))]
        one = ", ".join(f"{pair[0].ref} AS c{i}" for i, pair in enumerate(pairs))
        other = ", ".join(pair[1].ref for pair in pairs)
        if self.constants.seldom(0.1):
            other = ", ".join(self.constants.value(pair[0].kind) for pair in pairs)
        first = f"SELECT {one} FROM {left.sql}{self.where(left.cols, 0.3)}"
        second = f"SELECT {other} FROM {right.sql}{self.where(right.cols, 0.3)}"
        if self.constants.seldom(0.1):
            second = f"SELECT {', '.join(self.constants.value(pair[0].kind) for pair in pairs)}"
        return f"{first} {word} {second}"

    def by_subquery(self, depth: int) -> str:
        source = self.source(depth)
        inner = self.source(depth - 1)
        condition = self.subquery_condition(source, inner)
        if self.rng.random() < 0.3:
            word = self.rng.choice(("AND", "OR"))
            condition = f"{condition} {word} {self.terms.predicate(source.cols, 0)}"
        selected = self.select_list(source.cols)
        if self.rng.random() < 0.25:
            selected += f", {self.scalar_subquery(source)} AS q"
        if self.rng.random() < 0.3:
            # What the subquery says is shown, so that FALSE and NULL are told apart.
            return f"SELECT {selected}, {condition} AS f FROM {source.sql}{self.where(source.cols, 0.3)}"
        return f"SELECT {selected} FROM {source.sql} WHERE {condition}"

    def subquery_condition(self, source: Source, inner: Source) -> str:
        one, other = self.pair(source, inner)
        dice = self.rng.random()
        never = "NOT " if self.rng.random() < 0.4 else ""
        if dice < 0.4:
            residual = f" AND {self.theta(source, inner)}" if self.rng.random() < 0.3 else ""
            own = f" AND {self.terms.predicate(inner.cols, 0)}" if self.rng.random() < 0.4 else ""
            if self.constants.seldom(0.15):
                residual = f" {self.rng.choice(('AND', 'OR'))} {self.constants.condition()}"
            what = self.constants.value(one.kind) if self.constants.seldom(0.3) else "1"
            where = (
                f"{other.ref} = {one.ref}{residual}{own}" if not self.constants.seldom() else self.constants.condition()
            )
            return f"{never}EXISTS (SELECT {what} FROM {inner.sql} WHERE {where})"
        if dice < 0.75:
            own = self.where(inner.cols, 0.5)
            if never and self.rng.random() < 0.6:
                own = f" WHERE {other.ref} IS NOT NULL"
            left = self.constants.value(one.kind) if self.constants.seldom(0.25) else one.ref
            right = self.constants.value(one.kind) if self.constants.seldom(0.1) else other.ref
            return f"{left} {never}IN (SELECT {right} FROM {inner.sql}{own})"
        if dice < 0.9:
            compared = self.terms.comparison(source.cols, other.kind, f"(SELECT max({other.ref}) FROM {inner.sql})")
        else:
            scalar = self.scalar_subquery(source)
            compared = self.terms.comparison(source.cols, "int", scalar)
        if compared is None:
            raise NoFit
        return compared

    def scalar_subquery(self, source: Source) -> str:
        inner = self.relation()
        one, other = self.pair(source, inner)
        number = self.terms.of(inner.cols, "int")
        call = self.rng.choice(("count(*)", f"sum({number.ref})" if number else "count(*)"))
        if self.rng.random() < 0.3:
            return f"(SELECT {call} FROM {inner.sql})"
        return f"(SELECT {call} FROM {inner.sql} WHERE {other.ref} = {one.ref})"

    def first_rows(self, depth: int) -> str:
        source = self.inputs(depth)
        cols = self.sample([col for col in source.cols if col.kind in ORDERED], 3)
        selected = ", ".join(f"{col.ref} AS c{i}" for i, col in enumerate(cols))
        order = self.rng.choice(cols).ref + self.rng.choice(("", " DESC", " DESC NULLS LAST", " NULLS LAST"))
        total = ", ".join(order_terms(source.cols))
        offset = f" OFFSET {self.rng.randint(1, 3)}" if self.rng.random() < 0.15 else ""
        return (
            f"SELECT {selected} FROM {source.sql}{self.where(source.cols, 0.3)} "
            f"ORDER BY {order}, {total} LIMIT {0 if self.constants.seldom() else self.rng.randint(1, 6)}{offset}"
        )

    def exploded(self, depth: int) -> str:
        source = self.relation(of="doc") if "doc" in self.relations and self.rng.random() < 0.7 else self.source(0)
        array = self.terms.of(source.cols, "array")
        number = self.terms.of(source.cols, "int")
        if array is None and number is None:
            raise NoFit
        values = array.ref if array else f"array({number.ref if number else 1}, 7)"
        outer = "OUTER " if self.rng.random() < 0.5 else ""
        alias = self.alias()
        first = source.cols[0].ref
        if array is None or self.rng.random() < 0.6:
            call, names = self.rng.choice((("explode", "x"), ("posexplode", "p, x")))
            lateral = f"LATERAL VIEW {outer}{call}({values}) {alias} AS {names}"
            text = f"SELECT {first} AS c0, {names} FROM {source.sql} {lateral}"
        else:
            pair = self.terms.of(source.cols, "map")
            text = f"SELECT {first} AS c0, explode_outer({pair.ref if pair else values}) FROM {source.sql}"
        if self.rng.random() < 0.4 and " LATERAL " in text:
            return f"SELECT x, count(*) AS g0 FROM ({text}) {self.alias()} GROUP BY x"
        return text

    def with_names(self, depth: int) -> str:
        """A CTE that is read once or twice."""
        inner = self.query(max(0, depth - 1))
        cols = self.derived(inner).cols
        one, other = self.alias(), self.alias()
        left = Source(f"q {one}", [Col(f"{one}.{col.name}", col.kind) for col in cols])
        right = Source(f"q {other}", [Col(f"{other}.{col.name}", col.kind) for col in cols])
        if self.rng.random() < 0.5:
            selected = self.select_list(left.cols)
            return f"WITH q AS ({inner}) SELECT {selected} FROM {left.sql}{self.where(left.cols, 0.6)}"
        condition = self.equality(left, right)
        selected = f"{self.terms.scalar(left.cols)} AS c0, {self.terms.scalar(right.cols)} AS c1"
        return f"WITH q AS ({inner}) SELECT {selected} FROM {left.sql} JOIN {right.sql} ON {condition}"

    def lateral(self, depth: int) -> str:
        """A lateral subquery, or rows written in the query itself."""
        source = self.source(depth)
        if self.rng.random() < 0.5:
            number = self.terms.of(source.cols, "int")
            if number is None:
                raise NoFit
            alias = self.alias()
            rows = f"(VALUES (0, 'zero'), (1, 'one'), (2, NULL), (2, 'two')) {alias}(n, word)"
            kind = self.rng.choice(("JOIN", "LEFT JOIN"))
            selected = self.select_list(source.cols, 2)
            return f"SELECT {selected}, {alias}.word FROM {source.sql} {kind} {rows} ON {number.ref} = {alias}.n"
        inner = self.relation()
        one, other = self.pair(source, inner)
        alias = self.alias()
        body = f"SELECT count(*) AS n, max({other.ref}) AS m FROM {inner.sql} WHERE {other.ref} = {one.ref}"
        selected = self.select_list(source.cols, 2)
        return f"SELECT {selected}, {alias}.n FROM {source.sql}, LATERAL ({body}) {alias}"

    def with_constants(self, depth: int) -> str:
        source = self.source(depth)
        column = self.terms.of(source.cols, "string")
        if column is None:
            raise NoFit
        return (
            f"SELECT {column.ref} AS c0, count(*) AS g0 FROM {source.sql} GROUP BY {column.ref} "
            f"UNION ALL SELECT 'zero', 0"
        )
