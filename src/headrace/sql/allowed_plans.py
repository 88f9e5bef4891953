"""The plan nodes and expressions that SQL from outside may become: as parsed, and as Spark resolves them.

Class names are given without the package that they share. What Spark can do besides (programs, commands, files,
streams, functions of users) is made of other classes, and so is whatever a new release adds.
"""

from __future__ import annotations

PACKAGE = "org.apache.spark.sql.catalyst."


def _classes(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{PACKAGE}{package}.{name}" for name in names.split())


_QUERY = _classes(
    "plans.logical",
    """
    Aggregate DataFrameDropColumns Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll
    LocalLimit LocalRelation NearestByJoin Offset OneRowRelation Project RebalancePartitions Repartition
    RepartitionByExpression Sample Sort SubqueryAlias Union Window
    """,
) | _classes("expressions", "PipeOperator")

PARSED_PLANS = (
    _QUERY
    | _classes(
        "analysis",
        """
        UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation UnresolvedSubqueryColumnAliases
        UnresolvedTVFAliases UnresolvedTableValuedFunction
        """,
    )
    | _classes("plans.logical", "Pivot Unpivot UnresolvedHint UnresolvedWith WithWindowDefinition")
)

RESOLVED_PLANS = (
    _QUERY
    | _classes("analysis", "ResolvedInlineTable")
    | _classes(
        "plans.logical", "CTERelationDef CTERelationRef Expand Range ResolvedHint UnionLoop UnionLoopRef WithCTE"
    )
)

_OPERATORS = _classes(
    "expressions",
    """
    Add Alias And AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce Collate Concat
    CreateNamedStruct CurrentRow$ Divide EqualNullSafe EqualTo Exists GreaterThan GreaterThanOrEqual ILike In InSubquery
    IntegralDivide IsNotNull IsNull LambdaFunction LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny
    ListQuery Literal Multiply Not NotLikeAll NotLikeAny Or Overlay RLike Remainder ScalarSubquery ShiftLeft ShiftRight
    ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight Substring
    Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$
    UnspecifiedFrame$ WindowExpression WindowSpecDefinition
    """,
) | _classes("expressions.aggregate", "AggregateExpression AnyValue First Last")

PARSED_EXPRESSIONS = (
    _OPERATORS
    | _classes(
        "analysis",
        """
        MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
        UnresolvedOrdinal UnresolvedPipeAggregateOrdinal UnresolvedStar UnresolvedStarExceptOrReplace
        """,
    )
    | _classes(
        "expressions",
        """
        Cube CurrentDate CurrentTime CurrentTimestamp Extract GroupingSets LocalTimestamp NamePlaceholder$
        NamedArgumentExpression Now PipeExpression Rollup SemiStructuredExtract UnresolvedCollation
        UnresolvedNamedLambdaVariable UnresolvedWindowExpression
        """,
    )
)

# Beside the classes of the functions that are listed by name: what operators, types, windows and subqueries become, and
# functions that become another class than the one that Spark names.
RESOLVED_EXPRESSIONS = (
    _OPERATORS
    | _classes(
        "expressions",
        """
        BinaryPad BinaryPredicate Ceil CommonExpressionDef CommonExpressionRef Contains DateAddInterval
        DateAddYMInterval DatetimeSub DivideDTInterval DivideInterval DivideYMInterval EndsWith Explode
        ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
        ExtractANSIIntervalSeconds ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours
        ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears Floor
        GetArrayItem GetArrayStructFields GetMapValue GetStructField GetTimestamp Hour Inline KnownNotNull KnownNullable
        MakeTimestamp MakeTimestampFromDateTime MakeTimestampNTZ Mask Minute MultiplyDTInterval MultiplyInterval
        MultiplyYMInterval NamedLambdaVariable OuterReference PosExplode PreciseTimestampConversion RaiseError
        ReplicateRows ResolvedCollation RoundCeil RoundFloor Second SecondWithFraction SessionWindow StartsWith
        StringDecode StringLPad StringRPad SubtractDates SubtractTimes SubtractTimestamps TimeAddInterval TimeBucket
        TimestampAddInterval TimestampAddYMInterval TimeWindow ToCharacter TryEval TryMakeTimestamp
        TryMakeTimestampFromDateTime TupleUnionDouble TupleUnionInteger TupleUnionThetaDouble TupleUnionThetaInteger
        TypedNullLiteral With YearOfWeek
        """,
    )
    | _classes(
        "expressions.aggregate",
        """
        CountMinSketchAgg MaxBy MaxMinByK MinBy Mode PercentileCont PercentileDisc PivotFirst TupleSketchAggDouble
        TupleSketchAggInteger TupleUnionAggDouble TupleUnionAggInteger
        """,
    )
    | _classes("expressions.variant", "ParseJson VariantExplode VariantGet")
)
