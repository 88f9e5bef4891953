"""YAML as people write it by hand: plain values, and no small text that stands for a large document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

# A thousand times what anybody writes by hand; an alias of an alias of an alias is soon more.
_MOST_VALUES = 100_000
# What PyYAML meets in a value that is none of its type, such as a month 13, and does not tell as its own error.
_NO_SUCH_VALUE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def read_yaml(text: str) -> Any:
    """What the one document of a text holds; whatever is wrong with it is told as a MarkedYAMLError."""
    try:
        loader = _Loader(text)
        document = loader.get_single_node()
        if document is None:
            return None
        if _size(document, {}) > _MOST_VALUES:
            raise yaml.MarkedYAMLError(
                context="while following aliases",
                problem=f"found more than {_MOST_VALUES} values, or one that holds itself",
                problem_mark=document.start_mark,
            )
        return loader.construct_document(document)
    except ReaderError as error:
        before = text[: error.position]
        line = before.count("\n")
        mark = yaml.Mark("", error.position, line, len(before) - before.rfind("\n") - 1, None, 0)
        raise yaml.MarkedYAMLError(
            problem=f"found a character that YAML has not: {error.reason}", problem_mark=mark
        ) from None
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="found values inside of values, too deep to be read") from None


class _Loader(yaml.SafeLoader):
    """Has every value that is none of its type told with its position."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            _refuse_unwritable(value)
            return value
        except _NO_SUCH_VALUE as error:
            kind = str(node.tag).rpartition(":")[2]
            why = f": {error}" if isinstance(error, ValueError) else ""
            raise ConstructorError(
                f"while reading a value of type {kind}", None, f"found none{why}", node.start_mark
            ) from error


def _refuse_unwritable(value: Any) -> None:
    """Let nothing through that could be read, but not be told to anybody."""
    if isinstance(value, int):
        str(value)
    elif isinstance(value, str):
        value.encode()


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, those of an alias counted wherever it is used."""
    if id(node) not in known:
        # Met again before it is counted, it holds itself.
        known[id(node)] = _MOST_VALUES + 1
        known[id(node)] = min(1 + sum(_size(part, known) for part in _parts(node)), _MOST_VALUES + 1)
    return known[id(node)]


def _parts(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()
