"""headrace.yml: the keys of Spark's spark-pipeline.yml, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace.errors import ProjectError
from headrace.settings import Settings, read_settings, told_fault

FILE_NAME = "headrace.yml"


class Glob(BaseModel):
    """Which files belong to a library."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: str = Field(min_length=1, description="A pattern relative to the project's folder; ** is any folder.")


class Library(BaseModel):
    """One entry of `libraries`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    glob: Glob


class ProjectFile(BaseModel):
    """What headrace.yml may hold."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str = Field(min_length=1, description="What the project is called.")
    storage: str = Field(
        default="headrace-home",
        min_length=1,
        description="The home, which holds everything durable: a folder, relative to the project's, or a URI.",
    )
    libraries: tuple[Library, ...] = Field(
        default=(Library(glob=Glob(include="**/*.sql")),),
        description="The SQL files that define the project.",
    )
    catalog: str | None = Field(default=None, description="Read for Spark's sake; a home has one schema.")
    schema_name: str | None = Field(
        default=None, alias="schema", description="Read for Spark's sake, as is `database`."
    )
    database: str | None = Field(default=None, description="Another word for `schema`.")
    configuration: Mapping[str, str | int | float | bool] = Field(
        default_factory=dict[str, str | int | float | bool],
        description="Values by name, which SQL files use as ${name}.",
    )
    settings: Settings = Field(default_factory=Settings, description="Settings of the home, by their names.")


@dataclass(frozen=True)
class Project:
    """A project folder as its headrace.yml describes it."""

    folder: Path
    content: ProjectFile
    values: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its name."""
        return self.content.name

    @property
    def home(self) -> str:
        """Where its home lies: a folder, or the URI of one in an object store."""
        storage = urlparse(self.content.storage)
        if storage.scheme not in ("", "file"):
            return self.content.storage
        path = unquote(storage.path) if storage.scheme == "file" else self.content.storage
        return str(self.folder / Path(path).expanduser())

    @property
    def notes(self) -> list[str]:
        """What headrace.yml says that has no effect here."""
        content = self.content
        found = [
            f"{key} has no effect: a home has one schema"
            for key, value in (("catalog", content.catalog), ("schema", content.schema_name or content.database))
            if value is not None
        ]
        spark = [key for key in self.values if key.startswith("spark.")]
        return [*found, *(f"configuration {key} is not handed to Spark" for key in spark)]

    def sql_files(self) -> list[Path]:
        """The SQL files of its libraries, in the order of their paths, those of its home left out."""
        found: set[Path] = set()
        for library in self.content.libraries:
            found.update(self._matching(library.glob.include))
        python = sorted(path for path in found if path.suffix == ".py")
        if python:
            raise ProjectError(
                f"{python[0].relative_to(self.folder)} is not a SQL file",
                detail="Definitions in Python are not offered.",
                hint=f"let the libraries in {FILE_NAME} include SQL files only, such as sql/**",
            )
        files = sorted(path for path in found if path.suffix == ".sql")
        if not files:
            patterns = ", ".join(library.glob.include for library in self.content.libraries)
            raise ProjectError(
                f"the project {self.name} has no SQL files",
                detail=f"Nothing in {self.folder} matches {patterns}.",
                hint=f"see the libraries in {FILE_NAME}",
            )
        return files

    def _matching(self, pattern: str) -> list[Path]:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ProjectError(
                f"the library {pattern} lies outside of the project",
                hint=f"name files relative to the folder of {FILE_NAME}",
            )
        whole = f"{pattern}/*" if Path(pattern).name == "**" else pattern
        matches = self.folder.glob(whole)
        return [path for path in matches if path.is_file() and not path.is_relative_to(self.home)]


def open_project(path: Path, values: Mapping[str, str] | None = None) -> Project:
    """The project in a folder, or ProjectError; the values given here go before those of its configuration."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(
            f"there is no project at {path}",
            detail=f"{error}",
            hint=f"name a folder with a {FILE_NAME}, or make one: headrace init NAME",
        ) from error
    # What the environment sets wrongly is no fault of the file.
    read_settings()
    content = _read(file, text)
    configuration = {key: _text(value) for key, value in content.configuration.items()}
    return Project(file.parent.resolve(), content, {**configuration, **(values or {})})


def is_project(path: Path) -> bool:
    """Whether a path names a project: its folder, or its file."""
    return (path / FILE_NAME).is_file() or (path.name == FILE_NAME and path.is_file())


def _read(file: Path, text: str) -> ProjectFile:
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ProjectError(f"{file}{position}: {error.problem or 'it is not YAML'}", hint="mend the YAML") from error
    if not isinstance(content, dict):
        raise ProjectError(f"{file} holds no keys", hint="begin with 'name: ' and the project's name")
    try:
        return ProjectFile.model_validate(content)
    except ValidationError as error:
        raise ProjectError(
            f"{file} is not as it must be",
            detail="; ".join(_fault(one["loc"], one["type"], one["msg"]) for one in error.errors()) + ".",
            hint=f"its keys are {', '.join(_keys())}; docs/reference/settings.md lists those of settings",
        ) from error


def _keys() -> list[str]:
    return [field.alias or name for name, field in ProjectFile.model_fields.items()]


def _fault(where: Sequence[str | int], kind: str, message: str) -> str:
    return told_fault(where, kind, message, Settings if where[0] == "settings" else ProjectFile)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
