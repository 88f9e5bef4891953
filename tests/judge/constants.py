"""Literals, NULLs and what folds to them, to be put where a column, a condition or a relation could stand."""

from __future__ import annotations

from random import Random

LITERALS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "5", "-1", "10", "3"),
    "decimal": ("0.00", "1.00", "2.50", "-3.25", "2.99"),
    "double": ("0.0D", "1.5D", "-2.25D", "double('NaN')"),
    "string": ("'a'", "'A'", "'b'", "''", "'a '", "'buy'", "'X'"),
    "time": ("TIMESTAMP'2025-11-01 09:30:00'", "TIMESTAMP'2025-11-02 05:30:00'"),
    "date": ("DATE'2025-11-01'", "DATE'2025-11-02'"),
    "bool": ("true", "false"),
}
TYPES = {
    "int": "INT",
    "decimal": "DECIMAL(10,2)",
    "double": "DOUBLE",
    "string": "STRING",
    "time": "TIMESTAMP",
    "date": "DATE",
    "bool": "BOOLEAN",
}
TRUE, FALSE, UNKNOWN = (
    ("true", "1 = 1", "NULL IS NULL", "NULL <=> NULL", "2 BETWEEN 1 AND 3", "1 IN (1, NULL)"),
    ("false", "1 <> 1", "NULL IS NOT NULL", "1 <=> NULL", "'a' NOT IN ('a', NULL)"),
    ("CAST(NULL AS BOOLEAN)", "NULL = 1", "NULL BETWEEN 1 AND 3", "1 BETWEEN NULL AND 3", "1 NOT IN (2, NULL)"),
)
ROWS = (
    "VALUES (0, 'a', true), (1, 'b', NULL), (NULL, NULL, false)",
    "VALUES (1, 'a', true), (1, 'a', true)",
    "VALUES (CAST(NULL AS INT), 'x', false)",
    "SELECT 1, 'a', CAST(NULL AS BOOLEAN) UNION ALL SELECT NULL, 'b', true",
)


class Constants:
    """Constants drawn from one source of chance."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def seldom(self, share: float = 0.06) -> bool:
        """Whether a constant takes the place of something else this time."""
        return self.rng.random() < share

    def kind(self) -> str:
        return self.rng.choice(list(TYPES))

    def null(self, kind: str) -> str:
        """A typed NULL, written out or not seen before it is folded."""
        one = self.rng.choice(LITERALS[kind])
        written = f"CAST(NULL AS {TYPES[kind]})"
        return self.rng.choice((written, f"nullif({one}, {one})", f"CASE WHEN false THEN {one} END"))

    def value(self, kind: str) -> str:
        """A constant of the kind: a literal, a NULL, or an expression over them."""
        one = self.rng.choice(LITERALS[kind])
        if self.rng.random() < 0.4:
            return self.null(kind)
        return self.rng.choice((one, one, f"coalesce({self.null(kind)}, {one})", f"if(true, {one}, NULL)"))

    def key(self, kind: str) -> str:
        """A constant to group or partition by, where a bare number would be a column's position."""
        return f"CAST({self.value(kind)} AS {TYPES[kind]})"

    def condition(self) -> str:
        """A condition that no row decides."""
        return self.rng.choice(self.rng.choice((TRUE, FALSE, UNKNOWN)))

    def rows(self, alias: str) -> str:
        """A relation that is written out."""
        return f"({self.rng.choice(ROWS)}) {alias}(i, s, b)"

    def nothing(self, relation: str) -> str:
        """A query of a relation that never has a row."""
        end = self.rng.choice((f"WHERE {self.rng.choice(FALSE + UNKNOWN)}", "LIMIT 0"))
        return f"SELECT * FROM {relation} {end}"
