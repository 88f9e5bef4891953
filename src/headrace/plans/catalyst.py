"""Spark's plans and expressions, as Python reaches them: parsed, analyzed, built anew.

Everything that names a Spark internal lives in this package, so that one place must follow a new Spark release.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin
from pyspark.sql.types import DataType, StructType

from headrace.ir.nodes import Column
from headrace.plans import trees
from headrace.plans.failures import FAILURES
from headrace.plans.trees import Java, children
from headrace.spark.requirements import is_local
from headrace.state.arrow_types import nullable_type

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_OF_ANALYSIS = frozenset({"CTESubstitution", "CleanupAliases", "EliminateSubqueryAliases", "EliminateView"})


class Catalyst:
    """One session's door to Spark's plans."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.jvm: Java = session._jvm  # pyright: ignore[reportPrivateUsage]
        self.jsession: Java = session._jsparkSession  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        self._classes: dict[str, Java] = {}
        self._found: dict[str, Java] = {}
        gateway: Java = session.sparkContext._gateway  # pyright: ignore
        self._reader: Java = self.compiled("Trees", trees.SOURCE)
        self._reader.begin(gateway.java_gateway_server)
        trees.read_by(self._reader)
        self._nothing = self._reader.sequence("")
        self._datasets = self.module("org.apache.spark.sql.classic.Dataset")
        self._none = self.module("scala.None")
        # A hash join needs no order; sorting its sides would take most of a small query's time.
        by_hash = self.some(self.plan_class("HintInfo")(self.some(self.module(_PLANS + "SHUFFLE_HASH"))))
        self._join_hint = self.plan_class("JoinHint")(by_hash, by_hash)
        # Names are registered for a while under which one view alone is read.
        self.view_names_lock = threading.RLock()
        self._no_metadata = self.module("org.apache.spark.sql.types.Metadata").empty()

    @cached_property
    def is_local(self) -> bool:
        """Whether the executors live in this very driver."""
        return is_local(self.session)

    @cached_property
    def functions_by_class(self) -> dict[str, list[str]]:
        """The names of the functions that Spark comes with, by the class of what they become."""
        found: dict[str, list[str]] = {}
        for line in self._reader.functions().splitlines():
            name, made = line.split(" ")
            found.setdefault(made, []).append(name)
        return found

    @cached_property
    def task_settings(self) -> Java:
        """The session's settings, as a task finds them."""
        properties = self.jvm.java.util.Properties()
        properties.putAll(self.jsession.conf().getAllAsJava())
        return properties

    @cached_property
    def no_resources(self) -> Java:
        """The empty Scala map."""
        return self.module("scala.collection.immutable.Map").empty()

    def compiled(self, name: str, body: str) -> Java:
        """An object of a class that Spark's own compiler makes of its body."""
        # Once for a JVM: the cache of what Spark compiles is small unless we started it, and the gateway, which knows
        # classes by their names, would take the methods of the first for those of the next.
        gateway: Java = self.session.sparkContext._gateway  # pyright: ignore
        kept: dict[str, Java] = gateway._gateway_client.__dict__.setdefault("_headrace_compiled", {})
        if name not in kept:
            # The gateway remembers methods by the name of their class, and all that Spark compiles share one name: so
            # ours lies inside of it under its own.
            around = "public Object generate(Object[] none) { return null; }"
            source = f"{around}\npublic static class {name} {{\n{body}\n}}"
            code = self.expression_class("codegen.CodeAndComment")(source, self.no_resources)
            made = self.module(_EXPRESSIONS + "codegen.CodeGenerator").compile(code)._1()
            (kept[name],) = made.getClass().getDeclaredClasses()
        return kept[name].newInstance()

    def array(self, items: Sequence[Java]) -> Java:
        """A Java array of objects."""
        gateway: Java = self.session.sparkContext._gateway  # pyright: ignore
        made = gateway.new_array(self.jvm.java.lang.Object, len(items))
        for index, item in enumerate(items):
            made[index] = item
        return made

    def empty_batch(self, schema: Java) -> bytes:
        """The Arrow stream of no rows."""
        converters = self.module("org.apache.spark.sql.execution.arrow.ArrowConverters")
        return bytes(converters.createEmptyArrowBatch(schema, "UTC", True, False))

    def module(self, name: str) -> Java:
        """A Scala object by its full name."""
        if name not in self._found:
            self._found[name] = self.java_class(name + "$").__getattr__("MODULE$")
        return self._found[name]

    def java_class(self, name: str) -> Java:
        """A class by its full name; finding it asks the JVM about each part of the name, so it is kept."""
        if name not in self._classes:
            self._classes[name] = reduce(getattr, name.split("."), self.jvm)
        return self._classes[name]

    def seq(self, items: Iterable[Java]) -> Java:
        """A Scala sequence of Java objects."""
        numbers = " ".join(item._target_id for item in items)
        return self._reader.sequence(numbers) if numbers else self._nothing

    def some(self, value: Java) -> Java:
        """A Scala Some."""
        return self.java_class("scala.Some")(value)

    @property
    def none(self) -> Java:
        """The Scala None."""
        return self._none

    def plan_class(self, name: str) -> Java:
        """A logical operator's class, to construct one."""
        return self.java_class(_PLANS + name)

    def expression_class(self, name: str) -> Java:
        """An expression's class, to construct one."""
        return self.java_class(_EXPRESSIONS + name)

    def rule(self, name: str) -> Callable[[Java], Java]:
        """One of Spark's own rewrite rules, as a function of plans."""
        package = "analysis" if name in _OF_ANALYSIS else "optimizer"
        return self.module(f"org.apache.spark.sql.catalyst.{package}.{name}").apply

    def parse_query(self, sql: str) -> Java:
        """The parsed plan of a query; anything that is not a query is an error of Spark's parser."""
        return self._parser().parseQuery(sql)

    def parse_expression(self, sql: str) -> Java:
        """The parsed tree of one expression; anything before or after it is an error of Spark's parser."""
        return self._parser().parseExpression(sql)

    def _parser(self) -> Java:
        # The parser reads its settings from the thread's session; a thread that has none would parse by the defaults.
        self._sessions().setActiveSession(self.jsession)
        return self.jsession.sessionState().sqlParser()

    def _sessions(self) -> Java:
        return self.java_class("org.apache.spark.sql.classic.SparkSession")

    @contextmanager
    def active(self) -> Generator[None, None, None]:
        """Inside, this is the thread's session; afterwards that is again what it was, for it may be its caller's.

        Parsers and expressions read their settings from the thread's session. If Spark has ended, there is none.
        """
        before: Java = None
        with suppress(*FAILURES):
            before = self._sessions().getActiveSession()
            self._sessions().setActiveSession(self.jsession)
        try:
            yield
        finally:
            with suppress(*FAILURES):
                if before is not None and before.isDefined():
                    self._sessions().setActiveSession(before.get())
                elif before is not None:
                    self._sessions().clearActiveSession()

    def has_temporary_view(self, name: str) -> bool:
        """Whether a temporary view of this session has a name; none but ours are in it."""
        return self._names.getRawTempView(name).isDefined()

    @cached_property
    def _names(self) -> Java:
        return self.jsession.sessionState().catalog()

    def analyze(self, plan: Java) -> Java:
        """The plan with every name and type resolved by Spark."""
        return analyzed_plan(self.frame(plan))

    def frame(self, plan: Java) -> Any:
        """A DataFrame of a plan."""
        from pyspark.sql.classic.dataframe import DataFrame

        return DataFrame(self._datasets.ofRows(self.jsession, plan), self.session)

    def no_data(self, schema: StructType) -> Any:
        """A DataFrame without rows."""
        return self.session._create_dataframe([], schema, None, True)  # pyright: ignore

    def data(self, table: pa.Table, schema: StructType) -> Any:
        """A DataFrame of rows at hand, which travel with it."""
        # What a session itself offers for this makes it PySpark's active one, in all threads.
        return SparkConversionMixin.createDataFrame(self.session, table, schema)  # pyright: ignore

    def opaque(self, frame: Any) -> Any:
        """The same rows, of which the optimizer knows no more than of a table: their columns and size.

        Of rows at hand it knows each, and makes other answers of some queries: whether NULL is IN a list, for one.
        """
        rows = frame._jdf.queryExecution().toRdd()
        plan = self.module("org.apache.spark.sql.execution.LogicalRDD").fromDataset(rows, frame._jdf, False)
        return self.frame(plan)

    def literal(self, value: object) -> Java:
        """A literal of a Python int, bool, float or str."""
        return self.module(_EXPRESSIONS + "Literal").apply(value)

    def null_literal(self, data_type: Java) -> Java:
        """A NULL of a type."""
        return self.module(_EXPRESSIONS + "Literal").create(None, data_type)

    def java_type(self, data_type: DataType) -> Java:
        """Spark's own object of a type."""
        return self.module("org.apache.spark.sql.types.DataType").fromJson(data_type.json())

    def new_id(self) -> Java:
        """A fresh expression id."""
        return self.module(_EXPRESSIONS + "NamedExpression").newExprId()

    def id_of(self, column: Column) -> Java:
        """Spark's own object of a column's id."""
        return self.module(_EXPRESSIONS + "ExprId").apply(column.id)

    def alias(self, child: Java, name: str, expr_id: Java | None = None) -> Java:
        """An expression under a name, with an id of its own or a given one."""
        return self.expression_class("Alias")(
            child, name, expr_id or self.new_id(), self.seq([]), self.none, self.seq([])
        )

    def project(self, columns: Iterable[Java], child: Java) -> Java:
        """A projection."""
        return self.plan_class("Project")(self.seq(columns), child)

    def repeated(self, child: Java, times: Java) -> Java:
        """Each row as often as one of its columns says; the copies of one row are held together, but of no other."""
        # Unlike an array that is exploded, this is no part of generated code, which goes on to the end of all arrays.
        generator = self.expression_class("ReplicateRows")(self.seq([times, self.literal(1)]))
        again = self.alias(self.literal(1), "_headrace_again").toAttribute()
        return self.plan_class("Generate")(generator, self.seq([]), False, self.none, self.seq([again]), child)

    def filter(self, condition: Java, child: Java) -> Java:
        """A filter."""
        return self.plan_class("Filter")(condition, child)

    def join(self, left: Java, right: Java, kind: Java, condition: Java | None) -> Java:
        """A join; the condition may be None."""
        wrapped = self.none if condition is None else self.some(condition)
        return self.plan_class("Join")(left, right, kind, wrapped, self._join_hint)

    def inner(self) -> Java:
        """The join type INNER."""
        return self.module("org.apache.spark.sql.catalyst.plans.Inner")

    def one_partition(self, child: Java) -> Java:
        """The same rows in one partition, so that nothing above needs an exchange."""
        return self.plan_class("Repartition")(1, False, child)

    def both(self, conditions: Iterable[Java]) -> Java | None:
        """All conditions at once; None when there is none."""
        listed = list(conditions)
        if not listed:
            return None
        return reduce(lambda a, b: self.expression_class("And")(a, b), listed)

    def binary(self, name: str, left: Java, right: Java) -> Java:
        """A binary expression without settings of its own, such as And or EqualTo."""
        return self.expression_class(name)(left, right)

    def arithmetic(self, name: str, left: Java, right: Java) -> Java:
        """Add, Subtract or Multiply in the session's mode."""
        return self.expression_class(name)(left, right)

    def expression(self, column: Any) -> Java:
        """The expression of a PySpark column; functions in it are resolved when a plan is analyzed."""
        return self.module("org.apache.spark.sql.classic.ColumnNodeToExpressionConverter").apply(column._jc.node())

    def cast(self, child: Java, data_type: Java) -> Java:
        """A cast in the session's mode."""
        return self.module(_EXPRESSIONS + "Cast").apply(child, data_type, True).withTimeZone("UTC")


def analyzed_plan(frame: Any) -> Java:
    """The analyzed plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def rewrite(catalyst: Catalyst, expression: Java, replace: Callable[[Java], Java | None]) -> Java:
    """The expression with every part for which replace gives another one exchanged."""
    return _rewrite(catalyst, expression, replace)[0]


def _rewrite(catalyst: Catalyst, expression: Java, replace: Callable[[Java], Java | None]) -> tuple[Java, bool]:
    other = replace(expression)
    if other is not None:
        return other, True
    parts = [_rewrite(catalyst, child, replace) for child in children(expression)]
    if not any(changed for _, changed in parts):
        return expression, False
    return expression.withNewChildren(catalyst.seq([part for part, _ in parts])), True


def nullable_frame(frame: Any) -> Any:
    """The same columns with every part of them allowed to be NULL: Arrow refuses a NULL around what never is one."""
    types = [(field.dataType, nullable_type(field.dataType)) for field in frame.schema.fields]
    if all(own == loose for own, loose in types):
        return frame
    names = [f"c{i}" for i in range(len(types))]
    plain = frame.toDF(*names)
    return plain.select(*(plain[name].cast(loose).alias(name) for name, (_, loose) in zip(names, types, strict=True)))
