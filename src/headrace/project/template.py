"""The project that `headrace init` makes."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.errors import ProjectError
from headrace.project.folder import FILE_NAME

_FILES = {
    FILE_NAME: """\
# What this project is; all paths are relative to this file.
name: {name}

# The home: the folder that holds everything durable.
storage: headrace-home

# The files that define tables, views and sources; they may stand in any order.
libraries:
  - glob:
      include: sql/**
""",
    "sql/tables.sql": """\
CREATE TABLE customers (
    id BIGINT PRIMARY KEY,
    city STRING NOT NULL
);

CREATE TABLE orders (
    id BIGINT PRIMARY KEY,
    customer_id BIGINT NOT NULL,
    amount DECIMAL(10,2) NOT NULL
);
""",
    "sql/views.sql": """\
CREATE VIEW customer_orders AS
SELECT o.id, c.city, o.amount
FROM orders o
JOIN customers c ON c.id = o.customer_id;

CREATE VIEW revenue_by_city AS
SELECT city, COUNT(*) AS orders, SUM(amount) AS revenue
FROM customer_orders
GROUP BY city;
""",
    "changes.sql": """\
-- Not part of the project: a script of changes, each statement one epoch.
INSERT INTO customers VALUES (1, 'Oslo'), (2, 'Rome');
INSERT INTO orders VALUES (10, 1, 10.00), (11, 1, 5.50), (12, 2, 7.00);
UPDATE orders SET customer_id = 2 WHERE id = 11;
""",
    ".gitignore": """\
headrace-home/
""",
}


def make_project(folder: Path) -> list[str]:
    """Write the files of a new project into a folder of its own; what was written."""
    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ProjectError(
            f"'{name}' cannot be the name of a project", hint="use letters, digits, '-' and '_', such as shop"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{folder} is there already", hint="name a folder that is not there, or an empty one")
    try:
        for file, text in _FILES.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(name=name) if file == FILE_NAME else text, encoding="utf-8")
    except OSError as error:
        raise ProjectError(f"{folder} cannot be written", detail=str(error)) from error
    return list(_FILES)
