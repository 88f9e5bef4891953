"""AS OF clauses within a query: found, taken out, and every position kept.

After the name of a relation the clause belongs to that relation, as in Spark; at the very end of a query,
after anything else, it holds for the whole statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from headrace.sql.reader import Reader
from headrace.sql.syntax import TimeTravel
from headrace.sql.tokens import Token, keywords, quoted_value

_FORM = "FROM t VERSION AS OF 12, or at the end: SELECT ... VERSION AS OF 12 | TIMESTAMP AS OF '2025-01-31'"
_KINDS: dict[str, Literal["version", "timestamp"]] = {
    "VERSION": "version",
    "SYSTEM_VERSION": "version",
    "TIMESTAMP": "timestamp",
    "SYSTEM_TIME": "timestamp",
}
# `SELECT version AS of FROM t` names a column "of": what follows such an alias can begin no expression.
_AFTER_ALIAS = keywords(
    """FROM WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW UNION EXCEPT MINUS INTERSECT
    LATERAL JOIN INNER CROSS LEFT RIGHT FULL SEMI ANTI NATURAL ON USING PIVOT UNPIVOT TABLESAMPLE"""
)
_ENDS_FROM = keywords("SELECT WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW")
# Of other tokens nothing is asked: a query may have very many.
_TOLD = _ENDS_FROM.union(_KINDS, keywords("FROM JOIN LATERAL"))
_BINARY = frozenset(("+", "-", "*", "/", "%", "||", "|", "&", "^"))
_UNITS = frozenset(
    unit + plural
    for unit in keywords("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND")
    for plural in ("", "S")
)


def find_time_travel(source: str, tokens: Sequence[Token]) -> tuple[TimeTravel, ...]:
    """The AS OF clauses among the tokens of one query; offsets count from the query's first token."""
    reader = Reader(source, tokens, _FORM)
    clauses: list[TimeTravel] = []
    # For each open bracket, whether a name after a comma is a relation there.
    in_from = [False]
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text not in "()" if token.kind == "operator" else token.keyword not in _TOLD:
            index += 1
            continue
        reader.index = index
        if _at_clause(reader):
            clauses.append(_read_clause(reader, in_from[-1]))
            index = reader.index
        else:
            _follow(reader, in_from)
            index += 1
    return tuple(clauses)


def undated_relations(source: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """The names, in lower case, that stand where relations do, without an AS OF of their own.

    Some may be none: what a FROM inside a function's brackets is followed by looks the same. Names that the query gives
    itself (WITH x AS ...) are left out.
    """
    reader = Reader(source, tokens, _FORM)
    in_from = [False]
    found: list[str] = []
    own: set[str] = set()
    for index, token in enumerate(tokens):
        reader.index = index
        if token.keyword == "AS" and reader.at_symbol("(", 1) and index > 0:
            own.add(_spelled(tokens[index - 1]))
        listed = in_from[-1] and reader.at_symbol(",")
        _follow(reader, in_from)
        if listed or token.keyword in ("JOIN", "TABLE") or _is_from(tokens, index):
            found.extend(_undated(reader))
    return tuple(dict.fromkeys(name for name in found if name not in own))


def _undated(reader: Reader) -> Iterator[str]:
    """The name that follows, if there is one, and neither AS OF nor a function's brackets come after it."""
    reader.index += 1
    while reader.accept_symbol("("):
        pass
    while reader.at_symbol(".", 1):
        reader.index += 2
    named = reader.peek()
    if named is not None and named.kind in ("word", "quoted"):
        reader.index += 1
        reader.accept("FOR")
        if not (_at_clause(reader) or reader.at_symbol("(")):
            yield _spelled(named)


def _spelled(token: Token) -> str:
    return (quoted_value(token) if token.kind == "quoted" else token.text).lower()


def blank(sql: str, clauses: Sequence[TimeTravel]) -> str:
    """The text with spaces in place of the clauses; line breaks stay."""
    for clause in clauses:
        inside = "".join(c if c in "\r\n" else " " for c in sql[clause.start : clause.end])
        sql = sql[: clause.start] + inside + sql[clause.end :]
    return sql


def _follow(reader: Reader, in_from: list[bool]) -> None:
    if reader.at_symbol("("):
        # A relation may stand in parentheses of its own: FROM (a JOIN b ...).
        in_from.append(in_from[-1] and _before(reader, 1) in ("FROM", "JOIN", ",", "("))
    elif reader.at_symbol(")") and len(in_from) > 1:
        in_from.pop()
    elif reader.keyword() == "JOIN" or _is_from(reader.tokens, reader.index):
        in_from[-1] = True
    elif reader.keyword() in _ENDS_FROM or reader.at("LATERAL", "VIEW"):
        in_from[-1] = False


def _is_from(tokens: Sequence[Token], index: int) -> bool:
    """Whether relations follow here, unlike after IS DISTINCT FROM."""
    return tokens[index].keyword == "FROM" and (index == 0 or tokens[index - 1].keyword != "DISTINCT")


def _before(reader: Reader, count: int) -> str:
    at = reader.index - count
    if at < 0:
        return ""
    token = reader.tokens[at]
    return token.keyword or (token.text if token.kind == "operator" else "")


def _at_clause(reader: Reader) -> bool:
    if reader.keyword() not in _KINDS or not (reader.keyword(1) == "AS" and reader.keyword(2) == "OF"):
        return False
    following = reader.peek(3)
    if following is None:
        # Without a relation before it this is an alias at the end: SELECT version AS of.
        return False
    if following.kind == "operator":
        # A parenthesis after VERSION AS OF holds the columns of an alias: FROM version AS of (a, b).
        return following.text in "+-~" or (following.text == "(" and _KINDS[reader.keyword()] == "timestamp")
    return following.keyword not in _AFTER_ALIAS


def _read_clause(reader: Reader, in_from: bool) -> TimeTravel:
    begin = reader.index
    kind = _KINDS[reader.keyword()]
    first = begin - 1 if _before(reader, 1) == "FOR" else begin
    relation = _relation_before(reader, first, in_from)
    reader.index += 3
    value = reader.index
    if kind == "version":
        token = reader.peek()
        if token is None or token.kind not in ("number", "string"):
            raise reader.expected("the number of an epoch")
        reader.index += 1
    else:
        _read_value(reader)
    expression = reader.text_since(value)
    end = reader.index
    if relation is None and not reader.at_end:
        reader.index = begin
        raise reader.fail("AS OF is out of place")
    zero = reader.tokens[0].start
    return TimeTravel(relation, kind, expression, reader.tokens[first].start - zero, reader.tokens[end - 1].end - zero)


def _relation_before(reader: Reader, clause: int, in_from: bool) -> str | None:
    last = clause - 1
    if last < 1 or reader.tokens[last].kind not in ("word", "quoted"):
        return None
    begin = last
    while begin >= 2 and reader.tokens[begin - 1].text == "." and reader.tokens[begin - 2].kind != "operator":
        begin -= 2
    if begin == 0:
        return None
    before = reader.tokens[begin - 1]
    stands_as_relation = (
        before.keyword in ("JOIN", "TABLE")
        or _is_from(reader.tokens, begin - 1)
        or (in_from and before.kind == "operator" and before.text in (",", "("))
    )
    return reader.source[reader.tokens[begin].start : reader.tokens[last].end] if stands_as_relation else None


def _read_value(reader: Reader) -> None:
    """Step over operands joined by operators, so that an alias after the value is not taken into it."""
    _read_operand(reader)
    while (token := reader.peek()) is not None:
        if (token.kind == "operator" and token.text in _BINARY) or token.keyword == "DIV":
            reader.index += 1
            _read_operand(reader)
        elif reader.accept_symbol("::"):
            reader.index += 1
            if reader.at_symbol("("):
                reader.skip_brackets()
        elif reader.at_symbol("["):
            reader.skip_brackets()
        else:
            return


def _read_operand(reader: Reader) -> None:
    while reader.at_symbol("+") or reader.at_symbol("-") or reader.at_symbol("~"):
        reader.index += 1
    token = reader.peek()
    if token is None or (token.kind == "operator" and token.text != "("):
        raise reader.expected("a time")
    if token.kind == "operator":
        reader.skip_brackets()
    elif token.keyword == "INTERVAL":
        _read_interval(reader)
    elif token.keyword == "CASE":
        _read_case(reader)
    else:
        reader.index += 1
        if token.kind in ("word", "quoted"):
            _read_name_or_call(reader)


def _read_name_or_call(reader: Reader) -> None:
    following = reader.peek()
    if following is not None and following.kind == "string":
        reader.index += 1
        return
    while reader.at_symbol("."):
        reader.index += 2
    if reader.at_symbol("("):
        reader.skip_brackets()


def _read_interval(reader: Reader) -> None:
    reader.index += 1
    read_any = False
    while (token := reader.peek()) is not None:
        sign = 1 if token.text in ("+", "-") and not read_any else 0
        value = reader.peek(sign)
        if value is None or (value.kind not in ("number", "string") and not reader.at_symbol("(", sign)):
            break
        reader.index += sign
        if value.kind == "operator":
            reader.skip_brackets()
        else:
            reader.index += 1
        if reader.keyword() in _UNITS:
            reader.index += 1
        if reader.at("TO") and reader.keyword(1) in _UNITS:
            reader.index += 2
        read_any = True
    if not read_any:
        raise reader.expected("the length of the interval")


def _read_case(reader: Reader) -> None:
    depth = 0
    while not reader.at_end:
        depth += (reader.keyword() == "CASE") - (reader.keyword() == "END")
        reader.index += 1
        if depth == 0:
            return
    raise reader.expected("END")
