"""Random expressions: scalars, predicates, aggregates and window calls over given columns.

None of them may fail at run time under ANSI (divisions are guarded, products have small factors), and
none may depend on the order of rows. What depends on the order of floating-point additions is called
wobbly: such a column is named `w…` and nothing above may read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pyspark.sql.types import StructType

from tests.judge.constants import LITERALS, Constants

WOBBLY = "w"
ORDERED = frozenset({*LITERALS, "array"})


@dataclass(frozen=True)
class Col:
    """A column in reach: how to write it, and the kind of its type."""

    ref: str
    kind: str

    @property
    def name(self) -> str:
        return self.ref.rsplit(".", 1)[-1]


def kind_of(sql_type: str) -> str:
    """The kind of a Spark type, by its simple name."""
    if sql_type in ("tinyint", "smallint", "int", "bigint"):
        return "int"
    for start, kind in (
        ("decimal", "decimal"),
        ("double", "double"),
        ("string", "string"),
        ("timestamp", "time"),
        ("date", "date"),
        ("boolean", "bool"),
        ("array<int>", "array"),
        ("map<string,int>", "map"),
    ):
        if sql_type.startswith(start):
            return kind
    return "other"


def columns_of(schema: StructType, alias: str) -> list[Col]:
    """What a query above may read: columns of known kinds that do not wobble.

    A map cannot break a tie, so it is only in reach beside a key, which the table doc has.
    """
    cols = [Col(f"{alias}.{field.name}", kind_of(field.dataType.simpleString())) for field in schema.fields]
    hidden = {"other"} if "js" in schema.names else {"other", "map"}
    return [col for col in cols if col.kind not in hidden and not col.name.startswith(WOBBLY)]


def order_terms(cols: Sequence[Col]) -> list[str]:
    """All columns that can be ordered: after them, only equal rows tie."""
    return [col.ref for col in cols if col.kind in ORDERED]


class Terms:
    """Expressions drawn from one source of chance."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.constants = Constants(rng)

    def of(self, cols: Sequence[Col], *kinds: str) -> Col | None:
        """A column of one of the kinds, if there is one."""
        fitting = [col for col in cols if col.kind in kinds]
        return self.rng.choice(fitting) if fitting else None

    def literal(self, kind: str) -> str:
        return self.rng.choice(LITERALS[kind])

    def scalar(self, cols: Sequence[Col], depth: int = 1) -> str:
        """An expression of any kind over the columns."""
        if depth > 0 and self.constants.seldom():
            return self.constants.value(self.constants.kind())
        col = self.rng.choice(cols)
        if depth <= 0 or self.rng.random() < 0.45:
            return col.ref
        x = col.ref
        forms = {
            "int": (
                f"{x} + {self.literal('int')}",
                f"{x} * {self.rng.randint(-3, 3)}",
                f"pmod({x}, 3)",
                f"abs({x})",
                f"coalesce({x}, 0)",
                f"nullif({x}, 1)",
                f"{x} / nullif({x} - 1, 0)",
                f"CAST({x} AS STRING)",
                f"CAST({x} AS DECIMAL(20,2))",
                f"-{x}",
                f"try_divide({x}, {self.literal('int')})",
            ),
            "decimal": (
                f"{x} + 1.5",
                f"{x} * 2",
                f"round({x}, 1)",
                f"floor({x})",
                f"CAST({x} AS INT)",
                f"coalesce({x}, 0.00)",
                f"abs({x})",
            ),
            "double": (f"{x} * 2", f"{x} + 1", f"coalesce({x}, 0.0D)", f"isnan({x})", f"nullif({x}, 1.5D)"),
            "string": (
                f"upper({x})",
                f"length({x})",
                f"concat({x}, '-', {x})",
                f"coalesce({x}, 'none')",
                f"substring({x}, 1, 1)",
                f"trim({x})",
                f"try_cast({x} AS INT)",
                f"nullif({x}, '')",
                f"{x} || '!'",
                f"get_json_object({x}, '$.a')",
            ),
            "time": (
                f"date_trunc('hour', {x})",
                f"CAST({x} AS DATE)",
                f"hour({x})",
                f"{x} + INTERVAL 90 MINUTES",
                f"to_date(from_utc_timestamp({x}, 'America/New_York'))",
                f"unix_seconds({x})",
                f"date_format({x}, 'yyyy-MM-dd HH')",
            ),
            "date": (f"year({x})", f"date_add({x}, 1)", f"dayofweek({x})"),
            "bool": (f"NOT {x}", f"coalesce({x}, false)", f"CAST({x} AS INT)"),
            "array": (f"size({x})", f"get({x}, 0)", f"array_contains({x}, 1)", f"array_sort({x})", x),
            "map": (f"size({x})", f"try_element_at({x}, 'a')", f"array_sort(map_keys({x}))"),
        }
        if self.rng.random() < 0.25:
            otherwise = (
                f" ELSE {self.constants.value(col.kind)}" if col.kind in LITERALS and self.rng.random() < 0.3 else ""
            )
            return f"CASE WHEN {self.predicate(cols, 0)} THEN {x}{otherwise} END"
        return self.rng.choice(forms[col.kind])

    def predicate(self, cols: Sequence[Col], depth: int = 2) -> str:
        """A condition with three-valued logic."""
        dice = self.rng.random()
        if depth > 0 and dice < 0.4:
            left, right = self.predicate(cols, depth - 1), self.predicate(cols, depth - 1)
            return self.rng.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
        if self.constants.seldom():
            return f"({self.constants.condition()})"
        col = self.of(cols, *LITERALS) or self.rng.choice(cols)
        x = col.ref
        if col.kind not in LITERALS:
            return f"{x} IS NOT NULL"
        value, other = self.literal(col.kind), self.literal(col.kind)
        twin = self.of([c for c in cols if c != col], col.kind)
        forms = [
            f"{x} IS NULL",
            f"{x} IS NOT NULL",
            f"{x} {self.rng.choice(('=', '<>', '<', '>=', '>', '<=>'))} {value}",
            f"{x} IS DISTINCT FROM {value}",
            f"{x} IN ({value}, {other})",
            f"{x} NOT IN ({value}, {other})",
            f"{x} NOT IN ({value}, NULL)" if self.rng.random() < 0.2 else f"{x} IN ({value}, NULL)",
            f"{x} BETWEEN least({value}, {other}) AND greatest({value}, {other})",
            f"coalesce({x} > {value}, true)",
        ]
        if self.constants.seldom(0.2):
            null = self.constants.null(col.kind)
            forms = [
                f"{x} {self.rng.choice(('=', '<>', '<=>', '<'))} {null}",
                f"{x} BETWEEN {null} AND {value}",
                f"{x} NOT BETWEEN {value} AND {null}",
                f"{null} BETWEEN {x} AND {value}",
                f"{null} IN ({x}, {value})",
                f"{value} NOT IN ({x}, {null})",
                f"{value} <=> {x}",
            ]
        if twin is not None:
            forms.append(f"{x} {self.rng.choice(('=', '<', '<=>', '<>'))} {twin.ref}")
        if col.kind == "string":
            forms += [f"{x} LIKE 'a%'", f"lower({x}) = {value}"]
        if col.kind == "bool":
            forms += [x, f"{x} IS TRUE", f"{x} IS NOT FALSE"]
        return self.rng.choice(forms)

    def comparison(self, cols: Sequence[Col], kind: str, value: str) -> str | None:
        """A column of the kind compared with the given expression."""
        col = self.of(cols, kind)
        return f"{col.ref} {self.rng.choice(('<', '>', '=', '>=', '<>'))} {value}" if col else None

    def aggregate(self, cols: Sequence[Col]) -> tuple[str, bool]:
        """An aggregate call and whether it wobbles."""
        col = self.rng.choice([col for col in cols if col.kind != "map"])
        if self.constants.seldom(0.1):
            kind = self.constants.kind()
            col = Col(self.constants.value(kind), kind)
        x = col.ref
        total = f"struct({', '.join(order_terms(cols))})"
        forms: list[tuple[str, bool]] = [
            ("count(*)", False),
            (f"count({x})", False),
            (f"count(DISTINCT {x})", False),
            (f"min({x})", False),
            (f"max({x})", False),
            (f"max_by({x}, {total})", False),
            (f"min_by({x}, {total})", False),
            (f"count_if({self.predicate(cols, 0)})", False),
        ]
        if col.kind in ("int", "decimal"):
            forms += 2 * [(f"sum({x})", False), (f"avg({x})", False)]
            forms += [(f"sum(DISTINCT {x})", False), (f"avg(DISTINCT {x})", False)]
        if col.kind == "int":
            forms += [
                (f"var_pop({x})", True),
                (f"stddev_samp({x})", True),
                (f"median({x})", False),
                (f"bit_xor({x})", False),
                (f"mode() WITHIN GROUP (ORDER BY {x})", False),
            ]
            second = self.of(cols, "int")
            if second is not None:
                # corr is left out: over a constant column Spark divides by zero under ANSI.
                forms.append((f"covar_pop({x}, {second.ref})", True))
        if col.kind == "double":
            forms += [(f"sum({x})", True), (f"avg({x})", True), (f"var_pop({x})", True)]
        if col.kind == "bool":
            forms += 2 * [(f"bool_and({x})", False), (f"bool_or({x})", False)]
        if col.kind == "string":
            forms += [
                (f"array_join(array_sort(collect_list({x})), '|')", False),
                (f"array_join(array_sort(collect_set({x})), '|')", False),
                (f"listagg({x}, ',') WITHIN GROUP (ORDER BY {x})", False),
            ]
        call, wobbly = self.rng.choice(forms)
        if self.rng.random() < 0.2 and "WITHIN" not in call and "array_" not in call:
            call = f"{call} FILTER (WHERE {self.predicate(cols, 1)})"
        return call, wobbly

    def window_call(self, cols: Sequence[Col]) -> tuple[str, bool]:
        """A window expression, whose order is total where it matters, and whether it tells copies apart."""
        keys = [col.ref for col in cols if col.kind in ("int", "string", "bool", "date")]
        part = f"PARTITION BY {self.rng.choice(keys)} " if keys and self.rng.random() < 0.85 else ""
        if self.constants.seldom():
            part = f"PARTITION BY {self.constants.key(self.constants.kind())} "
        first = self.rng.choice(order_terms(cols))
        ordering = self.rng.choice(("", " DESC", " NULLS LAST", " DESC NULLS FIRST"))
        total = f"{part}ORDER BY {first}{ordering}, {', '.join(order_terms(cols))}"
        peers = f"{part}ORDER BY {first}{ordering}"
        col = self.of(cols, "int", "decimal", "string", "time") or cols[0]
        number = self.of(cols, "int", "decimal")
        x = self.constants.value(self.constants.kind()) if self.constants.seldom() else col.ref
        rows = self.rng.choice(
            (
                "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
                "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
            )
        )
        forms = [
            f"row_number() OVER ({total})",
            f"rank() OVER ({peers})",
            f"dense_rank() OVER ({peers})",
            f"ntile(3) OVER ({total})",
            f"percent_rank() OVER ({peers})",
            f"cume_dist() OVER ({peers})",
            f"lag({x}) OVER ({total})",
            f"lead({x}, 2) OVER ({total})",
            f"lag({x}, 2) OVER ({total})",
            f"first_value({x}) OVER ({total})",
            f"first_value({x}) IGNORE NULLS OVER ({total} {rows})",
            f"last_value({x}) OVER ({total} {rows})",
            f"nth_value({x}, 2) OVER ({total})",
            f"count(*) OVER ({peers})",
            f"min({x}) OVER ({total} {rows})",
            f"max({x}) OVER ({peers})",
            f"count({x}) OVER ({part})",
        ]
        if number is not None:
            n = number.ref
            end = self.rng.choice(("CURRENT ROW", "1 FOLLOWING"))
            reach = f"{part}ORDER BY {n} RANGE BETWEEN 2 PRECEDING AND {end}"
            forms += [
                f"sum({n}) OVER ({peers})",
                f"sum({n}) OVER ({total} {rows})",
                f"avg({n}) OVER ({total} {rows})",
                f"avg({n}) OVER ({part})",
                f"min({x}) OVER ({reach})",
                f"sum({n}) OVER ({reach})",
                f"count(*) OVER ({reach})",
            ]
        time = self.of(cols, "time")
        if time is not None:
            span = self.rng.choice(("INTERVAL 30 MINUTES", "INTERVAL 1 DAY", "INTERVAL 1 MONTH"))
            lately = f"{part}ORDER BY {time.ref}{ordering} RANGE BETWEEN {span} PRECEDING AND CURRENT ROW"
            forms += [f"count(*) OVER ({lately})", f"max({x}) OVER ({lately})"]
        call = self.rng.choice(forms)
        # With a frame by range, equal rows are peers and get equal values, whatever the order.
        return call, rows in call or call.startswith(("row_number", "ntile", "lag", "lead"))
