"""Commands: a function gets an aggregate's state and what was asked, and returns events or a refusal.

    @headrace.command("Customer")
    def change_email(state, customer_id: str, email: str):
        if state is None:
            raise headrace.CommandRefused("there is no such customer")
        return [{"event_type": "CustomerEmailUpdated", "event_data": {"email": email}}]

What it returns is appended for the version that it saw; where another came in between, it is asked again with the state
that there is by then. It must depend on nothing but what it is given, for it may be asked more than once.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from headrace.epoch.receipt import Receipt
from headrace.errors import BadArguments, CommandRefused, EventsRejected, Rejection, SetupError, VersionConflict
from headrace.events.event import Keyed, keyed
from headrace.events.open_store import OpenStore
from headrace.json_forms import json_form

Decide = Callable[..., Any]
_ATTEMPTS = 20


@dataclass(frozen=True)
class Command:
    """A command: its function, the type of aggregate that it is for, and the argument that is the aggregate's id."""

    name: str
    aggregate_type: str
    id_argument: str
    decide: Decide
    arguments: type[BaseModel]
    store: str | None = None
    attempts: int = _ATTEMPTS

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The function itself, for tests of its rules."""
        return self.decide(*given, **named)

    @property
    def schema(self) -> dict[str, Any]:
        """What it takes, as a JSON Schema."""
        return self.arguments.model_json_schema()


@dataclass(frozen=True)
class CommandResult:
    """What became of a command: how many events it made, and the epoch at which all views show them."""

    epoch: int
    version: int
    position: int
    events: int
    attempts: int = 1

    def to_json(self) -> dict[str, int]:
        """The result as plain values."""
        return {"epoch": self.epoch, "version": self.version, "position": self.position, "events": self.events}


def command(
    aggregate_type: str,
    *,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 - as an aggregate's is called
    store: str | None = None,
    attempts: int = _ATTEMPTS,
) -> Callable[[Decide], Command]:
    """Make a command of a function of a state and named, annotated arguments; the first of them is the aggregate's id.

    @headrace.command("Customer")
    def create(state, customer_id: str, name: str):
        if state is not None:
            raise headrace.CommandRefused("that customer is there already")
        return [{"event_type": "CustomerCreated", "event_data": {"name": name}}]
    """

    def made(decide: Decide) -> Command:
        # The annotations of a module that leaves them as texts are read in that module.
        parameters = list(inspect.signature(decide, eval_str=True).parameters.values())
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        if len(parameters) < 2 or any(one.kind not in plain for one in parameters):
            raise SetupError(
                f"{decide.__qualname__} cannot be a command",
                detail="A command takes a state and then named arguments, the first of which is the aggregate's id.",
                hint="write def change_email(state, customer_id: str, email: str): ...",
            )
        fields: dict[str, Any] = {}
        for one in parameters[1:]:
            kind = Any if one.annotation is one.empty else one.annotation
            fields[one.name] = (kind, ... if one.default is one.empty else one.default)
        chosen = id or parameters[1].name
        if chosen not in fields:
            raise SetupError(f"{decide.__qualname__} has no argument {chosen}", hint=f"there are {', '.join(fields)}")
        model = create_model(decide.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        return Command(name or decide.__name__, aggregate_type, chosen, decide, model, store, attempts)

    return made


def run_command(store: OpenStore, asked: Command, given: Mapping[str, Any], key: str | None = None) -> CommandResult:
    """Carry a command out, or raise CommandRefused, and then nothing has changed.

    The same key again, with the same arguments, has the result of the first time, also if nothing came of it; with
    others it raises KeyReused. Raises VersionConflict if others came in between each time.
    """
    arguments, content = _arguments(asked, given)
    name = str(arguments[asked.id_argument])
    known = None if key is None else keyed(key, ("command", store.name, asked.name, name), content)
    for attempt in range(1, asked.attempts + 1):
        state, reached = store.shown_state(asked.aggregate_type, name)
        if known is not None:
            # After the state: where that has the events of the first time already, its key is known by now.
            first = store.carried_out(known)
            if first is not None:
                return _result(store, first, attempt)
        events = _decided(asked, state, arguments, known)
        try:
            receipt = store.decide(asked.aggregate_type, name, events, reached, known)
        except VersionConflict:
            if attempt == asked.attempts:
                raise
            continue
        return _result(store, receipt, attempt, len(events))
    raise AssertionError("a command has at least one attempt")


def _result(store: OpenStore, receipt: Receipt, attempt: int, count: int = 0) -> CommandResult:
    made = receipt.applied.get(store.name, count)
    return CommandResult(receipt.epoch, receipt.version or 0, receipt.position or 0, made, attempt)


def _arguments(asked: Command, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments, and a text that is the same for the same ones."""
    try:
        model = asked.arguments.model_validate(dict(given))
    except ValidationError as error:
        reasons = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise BadArguments(asked.name, reasons, list(asked.arguments.model_fields)) from None
    arguments = {name: getattr(model, name) for name in asked.arguments.model_fields}
    try:
        plain = model.model_dump(mode="json")
    except (PydanticSerializationError, ValueError):
        plain = json_form(arguments)
    return arguments, json.dumps(plain, sort_keys=True)


def _decided(
    asked: Command, state: Any, arguments: Mapping[str, Any], known: Keyed | None
) -> Sequence[Mapping[str, Any]]:
    outcome = asked.decide(state, **arguments)
    if isinstance(outcome, CommandRefused):
        raise outcome
    if outcome is None:
        return ()
    events: list[Any] = [outcome] if isinstance(outcome, Mapping) else list(outcome)
    for index, one in enumerate(events) if known is not None else ():
        if isinstance(one, Mapping) and cast("Mapping[str, Any]", one).get("event_id") is not None:
            raise EventsRejected(
                [Rejection(asked.name, index, "under a key, events have the ids that follow from it")],
                hint=f"let the command {asked.name} give no event_id, or run it without a key",
            )
    return events


def load_commands(named: str) -> tuple[ModuleType, dict[str, Command]]:
    """The module of this name, or of this file, and its commands by their names."""
    try:
        module = _module_of_file(Path(named)) if named.endswith(".py") else importlib.import_module(named)
    # A module may do anything when it is read: to end this process is not for it to decide.
    except (Exception, SystemExit) as error:
        raise SetupError(
            f"the commands of {named} cannot be loaded",
            detail=f"{type(error).__name__}: {error}.",
            hint="name a Python file, or a module on Python's path",
        ) from error
    found = [one for one in vars(module).values() if isinstance(one, Command)]
    commands = {one.name: one for one in found}
    if len(commands) != len({id(one) for one in found}):
        raise SetupError(f"two commands of {named} have one name", hint="give one of them another by name=...")
    return module, commands


def _module_of_file(path: Path) -> ModuleType:
    name = f"headrace_commands_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    # Whoever reads annotations looks for the module here.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
