"""The definitions of a project: every statement of its files, with its position, in the order of their making."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, ProjectError, RelationNameError, StatementError
from headrace.events.projections import projection_view
from headrace.project.folder import Project
from headrace.sources.define import is_followed
from headrace.sql.script import split
from headrace.sql.statements import (
    CreateEventStore,
    CreateEventType,
    CreateFeed,
    CreateProjection,
    CreateSource,
    CreateTable,
    CreateView,
    Statement,
    parse,
    read_statement,
)
from headrace.sql.tokens import locate, scan

_VALUE = re.compile(r"\$\{([^}\n]*)\}")
Defining = CreateTable | CreateView | CreateSource | CreateFeed | CreateEventStore | CreateEventType
# A source, a feed or an event type may have the name of a relation.
_SPACES: Mapping[type[Statement], str] = {
    CreateSource: "source",
    CreateFeed: "changefeed",
    CreateEventType: "event type",
}
_DECLARE = (
    "a table that views of a project read is declared in it: write CREATE TABLE with its columns and its key, also "
    "where a source without INTO would make it"
)


@dataclass(frozen=True)
class Problem:
    """What is wrong in a file, and where."""

    file: str
    line: int
    column: int
    message: str
    detail: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


@dataclass(frozen=True)
class Definition:
    """One statement of one file."""

    file: str
    statement: Defining

    @property
    def name(self) -> str:
        """What it defines."""
        if isinstance(self.statement, CreateEventType):
            return f"{self.statement.event_type} version {self.statement.version} of {self.statement.store}"
        return self.statement.name

    @property
    def words(self) -> set[str]:
        """All words of a view's query, among them the names of what it reads."""
        statement = self.statement
        return (
            {t.text.strip("`").lower() for t in scan(statement.query)} if isinstance(statement, CreateView) else set()
        )

    def problem(self, error: HeadraceError) -> Problem:
        """An error that this statement met, at the position that the error knows, else at its beginning."""
        line, column = _position(error) or (self.statement.line, self.statement.column)
        return Problem(self.file, line, column, _without_position(error), error.detail, error.hint)


@dataclass
class Definitions:
    """All that a project defines, and what cannot be read of it."""

    stores: list[Definition] = field(default_factory=list[Definition])
    types: list[Definition] = field(default_factory=list[Definition])
    tables: list[Definition] = field(default_factory=list[Definition])
    views: list[Definition] = field(default_factory=list[Definition])
    sources: list[Definition] = field(default_factory=list[Definition])
    feeds: list[Definition] = field(default_factory=list[Definition])
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def all(self) -> list[Definition]:
        """All of them, each after what it may need."""
        return [*self.stores, *self.types, *self.tables, *self.views, *self.sources, *self.feeds]

    def problem(self, definition: Definition, error: HeadraceError) -> Problem:
        """An error that a definition met; where a view does not find one that reads it, the circle is told."""
        unknown = error.unknown if isinstance(error, RelationNameError) else ""
        circle = _circle(self.views, definition.name, unknown) if unknown else []
        if not circle:
            told = definition.problem(error)
            return replace(told, hint=_DECLARE) if unknown and any(map(_brings_tables, self.sources)) else told
        at = definition.statement
        return Problem(
            definition.file,
            at.line,
            at.column,
            f"view {definition.name} would read itself",
            f"It reads {', which reads '.join(circle[1:])}.",
            "views may read tables and other views, but not in a circle",
        )


def _brings_tables(definition: Definition) -> bool:
    """Whether a source makes the tables that its records are about: they are not there before it is read."""
    return isinstance(definition.statement, CreateSource) and not definition.statement.table


def read_definitions(project: Project) -> Definitions:
    """The definitions of all files, the views each after those that it reads, whichever file they stand in."""
    found = Definitions()
    names: dict[tuple[str, str], Definition] = {}
    projections: list[tuple[str, CreateProjection]] = []
    for path in project.sql_files():
        file = str(path.relative_to(project.folder))
        for statement in _statements(path, file, project.values, found.problems):
            if isinstance(statement, CreateProjection):
                projections.append((file, statement))
            elif isinstance(statement, Defining):
                _add(found, names, Definition(file, _anchored(statement, project.folder)))
            else:
                found.problems.append(_not_a_definition(file, statement))
    for file, projection in projections:
        view = _view_of(found, file, projection)
        if view is not None:
            _add(found, names, view)
    found.views = in_order(found.views)
    return found


def _add(found: Definitions, names: dict[tuple[str, str], Definition], definition: Definition) -> None:
    statement = definition.statement
    first = names.setdefault((_SPACES.get(type(statement), "relation"), definition.name), definition)
    if first is not definition:
        found.problems.append(_twice(definition, first))
    elif isinstance(statement, CreateTable):
        found.tables.append(definition)
    elif isinstance(statement, CreateView):
        found.views.append(definition)
    elif isinstance(statement, CreateFeed):
        found.feeds.append(definition)
    elif isinstance(statement, CreateEventStore):
        found.stores.append(definition)
    elif isinstance(statement, CreateEventType):
        found.types.append(definition)
    else:
        found.sources.append(definition)


def _view_of(found: Definitions, file: str, projection: CreateProjection) -> Definition | None:
    """The view that a projection is: it depends on how its store keeps data, so the project declares the store."""
    for one in found.stores:
        if isinstance(one.statement, CreateEventStore) and one.name == projection.store:
            data = str(dict(one.statement.options).get("data", "json")).lower()
            return Definition(file, projection_view(projection, {"data": data}))
    found.problems.append(
        Problem(
            file,
            projection.line,
            projection.column,
            f"there is no event store {projection.store} in the project",
            f"The projection {projection.name} is of its events.",
            f"write CREATE EVENT STORE {projection.store} in a file of the project",
        )
    )
    return None


def makes_tables(script: str) -> bool:
    """Whether a script makes a table or an event store, or StatementError if it cannot be read."""
    return any(
        isinstance(one, CreateTable | CreateEventStore) or (isinstance(one, CreateSource) and not one.table)
        for one in parse(script)
    )


def makes_followed(statements: Iterable[Statement]) -> bool:
    """Whether any makes a source or a feed that needs a process that stays, as one that serves the home does."""
    return any(
        isinstance(one, CreateFeed) or (isinstance(one, CreateSource) and is_followed(one)) for one in statements
    )


def script_makes_followed(script: str) -> bool:
    """The same of a script, or StatementError if it cannot be read."""
    return makes_followed(parse(script))


def in_order(views: Sequence[Definition]) -> list[Definition]:
    """Views each after those whose names its query has, otherwise as they stand, so also in a circle."""
    names = {view.name for view in views}
    reads = {view.name: names.intersection(view.words) - {view.name} for view in views}
    ordered: list[Definition] = []
    waiting = list(views)
    while waiting:
        done = {view.name for view in ordered}
        ready = next((view for view in waiting if reads[view.name] <= done), waiting[0])
        ordered.append(ready)
        waiting.remove(ready)
    return ordered


def _circle(views: Sequence[Definition], name: str, first: str) -> list[str]:
    """The shortest way from a view over the first, and by the names that queries have, back to it; maybe none."""
    words = {view.name: view.words for view in views}
    if first == name:
        return [name, name]
    ways = [[name, first]]
    for way in ways:
        for step in sorted(words.keys() & words.get(way[-1], set())):
            if step == name:
                return [*way, name]
            if all(step not in other for other in ways):
                ways.append([*way, step])
    return []


def refuse_problems(problems: Sequence[Problem]) -> None:
    """Nothing, or one ProjectError that lists them all, each with what to do about it."""
    if not problems:
        return
    hints = {problem.hint for problem in problems if problem.hint}
    # One hint for all stands where hints stand; several stand each with its own problem.
    told = [f"{one}\n  hint: {one.hint}" if len(hints) > 1 and one.hint else str(one) for one in problems]
    raise ProjectError(
        f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the project",
        detail="\n".join(told),
        hint=hints.pop() if len(hints) == 1 else "mend each as its own hint says" if hints else "see 'headrace check'",
    )


def _statements(path: Path, file: str, values: Mapping[str, str], problems: list[Problem]) -> list[Statement]:
    """The statements of a file that can be read; all that cannot become problems."""
    try:
        text = _with_values(path.read_text(encoding="utf-8"), values)
        pieces = split(text)
    except UnicodeDecodeError as error:
        problems.append(Problem(file, 1, 1, "the file is not UTF-8", str(error)))
        return []
    except OSError as error:
        problems.append(Problem(file, 1, 1, "the file cannot be read", str(error)))
        return []
    except StatementError as error:
        problems.append(
            Problem(file, *(_position(error) or (1, 1)), _without_position(error), error.detail, error.hint)
        )
        return []
    found: list[Statement] = []
    for piece in pieces:
        try:
            found.append(read_statement(text, piece))
        except StatementError as error:
            position = _position(error) or (piece.line, piece.column)
            problems.append(Problem(file, *position, _without_position(error), error.detail, error.hint))
    return found


def _with_values(text: str, values: Mapping[str, str]) -> str:
    """The text with every ${name} replaced."""

    def value(match: re.Match[str]) -> str:
        found = values.get(match.group(1))
        if found is None:
            line, column = locate(text, match.start())
            raise StatementError(
                f"{match.group()} has no value",
                hint=f"give it under 'configuration' in headrace.yml, or as --set {match.group(1)}=...",
                line=line,
                column=column,
            )
        return found

    return _VALUE.sub(value, text)


def _anchored(statement: Defining, folder: Path) -> Defining:
    """The path of a source or a feed begins in the project's folder, wherever the command is run."""
    if isinstance(statement, CreateFeed):
        if statement.sink != "files" or statement.location.startswith("env:"):
            return statement
    elif not isinstance(statement, CreateSource) or statement.connector not in ("delta", "files"):
        return statement
    if "://" not in statement.location:
        return replace(statement, location=str(folder / Path(statement.location).expanduser()))
    return statement


def _not_a_definition(file: str, statement: Statement) -> Problem:
    words = statement.sql.upper().split(None, 3)
    # What makes something else than a project holds does define: it is its place that is wrong.
    said = f"{' '.join(words[: 3 if words[1:2] == ['EVENT'] else 2])} has no place in a project"
    return Problem(
        file,
        statement.line,
        statement.column,
        said if words[0] in ("CREATE", "ALTER", "DROP") else f"{words[0]} defines nothing",
        "A project holds CREATE TABLE, VIEW, SOURCE, CHANGEFEED, EVENT STORE, EVENT TYPE and PROJECTION, which can be "
        "run again and again.",
        "put it into a script of its own and run that: headrace run script.sql",
    )


def _twice(second: Definition, first: Definition) -> Problem:
    where = f"{first.file}:{first.statement.line}"
    at = second.statement
    return Problem(second.file, at.line, at.column, f"{second.name} is defined twice", f"First in {where}.", "keep one")


def _position(error: HeadraceError) -> tuple[int, int] | None:
    line: Any = getattr(error, "line", None)
    column: Any = getattr(error, "column", None)
    return None if line is None or column is None else (line, column)


def _without_position(error: HeadraceError) -> str:
    position = _position(error)
    return (
        error.message
        if position is None
        else error.message.removesuffix(f" at line {position[0]}, column {position[1]}")
    )
