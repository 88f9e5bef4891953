"""Every operator that has a rule. A plan is offered to them in this order, and the first that knows it takes it."""

from __future__ import annotations

from typing import Any

from headrace.rules import (
    aggregate,
    aggregate_whole,
    constant,
    filter_project,
    inner_join,
    limit,
    outer_join,
    scan,
    union,
    window,
)
from headrace.rules.context import Operator

RULES: tuple[Operator[Any], ...] = (
    scan.OPERATOR,
    constant.OPERATOR,
    filter_project.OPERATOR,
    union.OPERATOR,
    inner_join.OPERATOR,
    outer_join.OPERATOR,
    aggregate.OPERATOR,
    aggregate_whole.OPERATOR,
    window.OPERATOR,
    limit.OPERATOR,
)
