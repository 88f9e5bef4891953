"""Reading one statement token by token, with errors that tell the position and the expected form."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from headrace.errors import StatementError, UnsupportedStatement
from headrace.sql.names import Name, column_name_fault, relation_name_fault, shortened
from headrace.sql.tokens import Token, keywords, locate, quoted_value, string_value

# Spark lets these be names of relations, but where a name is due they mean that it was left out.
_NEVER_A_RELATION = keywords("AS FROM INTO JOIN ON SELECT SET USING VALUES WHERE WITH")
_QUERY_STARTS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")


def near_miss(word: str, choices: Iterable[str]) -> str:
    """The choice that the word was probably meant to be, or nothing."""
    found = difflib.get_close_matches(word.upper(), list(choices), n=1, cutoff=0.65)
    return found[0] if found else ""


class Reader:
    """A position within the tokens of one statement; `form` is what its errors advise to write."""

    def __init__(self, source: str, tokens: Sequence[Token], form: str = "") -> None:
        self.source = source
        self.tokens = tokens
        self.index = 0
        self.form = form

    def peek(self, ahead: int = 0) -> Token | None:
        """The token here or further on, None after the last."""
        at = self.index + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    @property
    def at_end(self) -> bool:
        return self.index >= len(self.tokens)

    def keyword(self, ahead: int = 0) -> str:
        """The keyword here or further on, nothing where there is none."""
        token = self.peek(ahead)
        return token.keyword if token else ""

    def at(self, *words: str) -> bool:
        """Whether these keywords come next, one after the other."""
        return all(self.keyword(ahead) == word for ahead, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Step over these keywords if they come next."""
        found = self.at(*words)
        if found:
            self.index += len(words)
        return found

    def accept_cascade(self) -> bool:
        """Step over RESTRICT, which is the default, or CASCADE; return whether it is CASCADE."""
        cascade = self.accept("CASCADE")
        if not cascade:
            self.accept("RESTRICT")
        return cascade

    def expect(self, *words: str) -> None:
        """Step over these keywords or fail."""
        for word in words:
            if not self.accept(word):
                raise self.expected(word)

    def at_symbol(self, text: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token is not None and token.kind == "operator" and token.text == text

    def accept_symbol(self, text: str) -> bool:
        found = self.at_symbol(text)
        self.index += found
        return found

    def expect_symbol(self, text: str) -> None:
        if not self.accept_symbol(text):
            raise self.expected(f"'{text}'")

    def at_query(self) -> bool:
        """Whether a query begins here."""
        return self.keyword() in _QUERY_STARTS or self.at_symbol("(")

    def expect_end(self) -> None:
        """Fail if anything follows."""
        if not self.at_end:
            raise self.expected("the end of the statement")

    def relation(self, what: str, *, new: bool = False) -> Name:
        """The name of a relation; a new one must also be a name that users may give."""
        if self.keyword() in _NEVER_A_RELATION:
            raise self.expected(f"the name of a {what}")
        name = self._name(f"the name of a {what}")
        if self.at_symbol(".") and self._is_name(1):
            self.index += 1
            last = self._name("a name")
            raise self._unsupported_at(
                name.line,
                name.column,
                "qualified names are not offered",
                f"there is one schema: write {last.spelled}",
            )
        if new and (fault := relation_name_fault(name.spelled)):
            raise _unusable(name, what, fault)
        return name

    def qualifier(self) -> Name:
        """The name before a dot."""
        return self._name("a name")

    def column(self, *, new: bool = False) -> Name:
        """The name of a column; a new one must also be a name that users may give."""
        name = self._name("the name of a column")
        if self.at_symbol("."):
            raise self._unsupported_at(
                name.line, name.column, "a column is named without a qualifier here", self._advice()
            )
        if new and (fault := column_name_fault(name.spelled)):
            raise _unusable(name, "column", fault)
        return name

    def columns(self, *, new: bool = False) -> list[Name]:
        """A list of columns in parentheses, none of them twice."""
        self.expect_symbol("(")
        names: list[Name] = []
        known: set[str] = set()
        while True:
            name = self.column(new=new)
            if name.name in known:
                raise StatementError(
                    f"column '{name.spelled}' is listed twice",
                    hint="name it once; names do not differ by case",
                    line=name.line,
                    column=name.column,
                )
            names.append(name)
            known.add(name.name)
            if not self.accept_symbol(","):
                break
        if not self.accept_symbol(")"):
            raise self.expected("','", "')'")
        return names

    def at_name_list(self) -> bool:
        """Whether a list of bare names in parentheses comes next, which no query can be."""
        if not (self.at_symbol("(") and self._is_name(1)):
            return False
        ahead = 2
        while self.at_symbol(",", ahead) and self._is_name(ahead + 1):
            ahead += 2
        return self.at_symbol(")", ahead)

    def string(self, what: str) -> str:
        """The value of a string."""
        token = self.peek()
        if token is None or token.kind != "string":
            raise self.expected(what)
        self.index += 1
        return string_value(token)

    def text_since(self, index: int) -> str:
        """The exact text from a token to the last one read."""
        if index >= self.index:
            return ""
        return self.source[self.tokens[index].start : self.tokens[self.index - 1].end]

    def rest(self) -> str:
        """The exact text from here to the end of the statement, which is thereby read."""
        index, self.index = self.index, len(self.tokens)
        return self.text_since(index)

    def skip_brackets(self) -> None:
        """Step over the bracket that opens here, with all it holds."""
        depth = 0
        while (token := self.peek()) is not None:
            self.index += 1
            if token.kind == "operator":
                depth += (token.text in "([{") - (token.text in ")]}")
            if depth == 0:
                return

    def position(self) -> tuple[int, int]:
        """The line and the column of the token here, or of the statement's end."""
        token = self.peek()
        if token:
            return token.line, token.column
        return locate(self.source, self.tokens[-1].end) if self.tokens else (1, 1)

    def expected(self, *choices: str) -> StatementError:
        """The error that something else stands here; near misses of keywords are named."""
        token = self.peek()
        found = f"'{_shorten(token.text)}'" if token else "the end of the statement"
        line, column = self.position()
        known = [choice.split()[0] for choice in choices if choice.isupper()]
        hint = self._advice(near_miss(token.text, known) if token and token.kind == "word" else "")
        if token and token.text.startswith('"') and any("name of" in choice for choice in choices):
            hint = "double quotes make a string; quote names with `backticks`"
        return StatementError(f"expected {_either(choices)}, found {found}", hint=hint, line=line, column=column)

    def fail(self, message: str, *, hint: str = "") -> StatementError:
        """An error at this position, with the form as the hint unless another is given."""
        line, column = self.position()
        return StatementError(message, hint=hint or self._advice(), line=line, column=column)

    def unsupported(self, message: str, *, hint: str = "") -> UnsupportedStatement:
        """A refusal at this position, with the form as the hint unless another is given."""
        line, column = self.position()
        return self._unsupported_at(line, column, message, hint or self._advice())

    def _unsupported_at(self, line: int, column: int, message: str, hint: str) -> UnsupportedStatement:
        return UnsupportedStatement(message, hint=hint, line=line, column=column)

    def _advice(self, meant: str = "") -> str:
        parts = [f"did you mean {meant}?"] if meant else []
        parts += [f"write {self.form}"] if self.form else []
        return " ".join(parts)

    def _is_name(self, ahead: int) -> bool:
        token = self.peek(ahead)
        return token is not None and token.kind in ("word", "quoted")

    def _name(self, what: str) -> Name:
        token = self.peek()
        if token is None or not self._is_name(0):
            raise self.expected(what)
        spelled = quoted_value(token) if token.kind == "quoted" else token.text
        if not spelled:
            raise self.fail("a name is empty")
        self.index += 1
        return Name(spelled.lower(), spelled, token.line, token.column)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else ", ".join(choices[:-1]) + " or " + choices[-1]


def _unusable(name: Name, what: str, fault: str) -> StatementError:
    message = f"'{shortened(name.spelled)}' cannot be the name of a {what}"
    return StatementError(message, hint=fault, line=name.line, column=name.column)
