"""SHOW, DESCRIBE and EXPLAIN: what a home tells of its relations, as rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.feeds.running import shown as shown_feeds
from headrace.reading.explain import explain_view
from headrace.sources.running import shown
from headrace.sql.syntax import Describe, Explain, ExplainQuery, Show
from headrace.statements.create import view_of
from headrace.statements.engine import Engine


def explain(loop: Loop, statement: Explain) -> pa.Table:
    """How a view is kept current, or would be."""
    core = loop.core
    if isinstance(statement.target, str):
        return _lines(str(explain_view(core.catalog.view(statement.target))))
    created = statement.target

    def explained() -> str:
        view = core.make_view(view_of(core, created))
        try:
            return str(explain_view(view))
        finally:
            view.context.clear()

    # The analyzer knows the names of one catalog at a time, and a definition under way has its own.
    return _lines(loop.between_epochs(explained))


def explain_query(core: Core, statement: ExplainQuery) -> pa.Table:
    """Spark's plan of a query."""
    frame = core.sessions.queries.frame(statement.query.plain_sql, core.relations())
    return _lines(frame._jdf.queryExecution().toString())


def _lines(text: str) -> pa.Table:
    return pa.table({"plan": pa.array(text.splitlines(), type=pa.string())})


def show(engine: Engine, statement: Show) -> pa.Table:
    """The relations of one kind."""
    core = engine.core
    held = {name: snapshot.count for name, (snapshot, _) in core.relations().items()}
    if statement.what == "tables":
        tables = [one for one in core.catalog.tables() if one.name in held]
        return pa.table(
            {
                "name": pa.array([t.name for t in tables], type=pa.string()),
                "key": pa.array([", ".join(t.contract.key) for t in tables], type=pa.string()),
                "rows": pa.array([held[t.name] for t in tables], type=pa.int64()),
            }
        )
    if statement.what == "views":
        views = [one for one in core.catalog.views() if one.name in held]
        return pa.table(
            {
                "name": pa.array([v.name for v in views], type=pa.string()),
                "incremental": pa.array([v.incremental for v in views], type=pa.bool_()),
                "reads": pa.array([", ".join(v.resolved.reads) for v in views], type=pa.string()),
                "rows": pa.array([held[v.name] for v in views], type=pa.int64()),
            }
        )
    if statement.what == "flows":
        flows = core.catalog.flows()
        columns: dict[str, list[Any]] = {
            "name": [flow.name for flow, _ in flows],
            "target": [flow.target for flow, _ in flows],
            "stream": [flow.stream for flow, _ in flows],
            "keys": [", ".join(flow.keys) for flow, _ in flows],
            "sequence_by": [flow.sequence for flow, _ in flows],
            "scd_type": [flow.scd_type for flow, _ in flows],
            "incremental": [target.incremental for _, target in flows],
            "rows": [held.get(target.name, 0) for _, target in flows],
        }
        kinds = {"scd_type": pa.int32(), "incremental": pa.bool_(), "rows": pa.int64()}
        return pa.table({name: pa.array(values, kinds.get(name, pa.string())) for name, values in columns.items()})
    if statement.what == "sources":
        return shown(core, engine.sources)
    return shown_feeds(core, engine.feeds)


def describe(core: Core, statement: Describe) -> pa.Table:
    """The columns of a relation."""
    relation = core.catalog.get(statement.name)
    key = relation.contract.key if isinstance(relation, Table) else relation.key
    fields = relation.schema.fields
    return pa.table(
        {
            "col_name": pa.array([f.name for f in fields], type=pa.string()),
            "data_type": pa.array([f.dataType.simpleString() for f in fields], type=pa.string()),
            "nullable": pa.array([f.nullable and f.name not in key for f in fields], type=pa.bool_()),
            "key": pa.array([f.name in key for f in fields], type=pa.bool_()),
        }
    )
