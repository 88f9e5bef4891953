"""headrace.yml: the keys of Spark's spark-pipeline.yml, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from headrace.errors import ProjectError
from headrace.plain_yaml import read_yaml
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

    @field_validator("settings", mode="before")
    @classmethod
    def _refuse_other_keys(cls, given: Any) -> Any:
        """Refuse what is no name: it would be a keyword of Python's call by which settings are made."""
        for key in cast("dict[object, Any]", given) if isinstance(given, dict) else ():
            if not isinstance(key, str) or key.startswith("_"):
                raise ValueError(f"{key} is no name of a setting")
        return given


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
        given = self.content.storage
        try:
            storage = urlsplit(given)
            if storage.scheme not in ("", "file"):
                return given
            path = Path(unquote(storage.path) if storage.scheme == "file" else given).expanduser()
        except (RuntimeError, ValueError) as error:
            raise ProjectError(
                f"the storage {given} cannot be read",
                detail=f"{str(error).removesuffix('.')}.",
                hint=f"let storage in {self.folder / FILE_NAME} name a folder, or a URI such as s3://bucket/home",
            ) from error
        if storage.scheme == "file" and (storage.netloc not in ("", "localhost") or storage.query or storage.fragment):
            raise ProjectError(
                f"the storage {given} is no folder of this machine",
                detail="What stands after file:// and before the next slash is a machine; ? and # end a path.",
                hint=f"write storage in {self.folder / FILE_NAME} as file:///folder, or the folder itself",
            )
        return str(self.folder / path)

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
                detail="It begins with a slash, or goes up by two dots.",
                hint=f"name files relative to the folder of {FILE_NAME}",
            )
        if not Path(pattern).parts:
            raise ProjectError(
                f"the library {pattern} names no files",
                detail="It is the project's folder itself.",
                hint="write ** for every file in it and below it",
            )
        whole = f"{pattern}/*" if Path(pattern).name == "**" else pattern
        home = self.home
        try:
            return [path for path in self.folder.glob(whole) if path.is_file() and not path.is_relative_to(home)]
        except (OSError, RuntimeError, ValueError) as error:
            raise ProjectError(
                f"the library {pattern} cannot be looked for",
                detail=f"{error}.",
                hint=f"see the libraries in {self.folder / FILE_NAME}; sql/** is every file below the folder sql",
            ) from error


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
        content = read_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        said = ", ".join(part for part in (error.context, error.problem) if part).removesuffix(".")
        raise ProjectError(
            f"{file}{position} cannot be read as YAML", detail=f"{said[:1].upper()}{said[1:]}.", hint="mend the YAML"
        ) from error
    if not isinstance(content, dict):
        raise ProjectError(
            f"{file} holds no keys",
            detail="It is empty, or another value than keys with theirs.",
            hint="begin with 'name: ' and the project's name",
        )
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
