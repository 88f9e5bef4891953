"""Commands: rules over a state, refusals that change nothing, retries, and keys."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import BadArguments, CommandRefused, EventsRejected, SetupError, VersionConflict
from headrace.events.commands import load_commands, run_command
from headrace.serving.problems import problem_of
from tests.small_events import SmallStore, create, event


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path)


@headrace.command("Account", id="account")
def pay(state: Any, amount: Decimal, account: str = "main") -> Any:
    """Pay something."""
    balance = Decimal(str((state or {}).get("balance", 0)))
    if amount <= 0:
        return CommandRefused("nothing to pay")
    return [event("Paid", amount=amount), event("Balanced", balance=balance + amount)]


@headrace.command("Account")
def nothing(state: Any, account: str) -> None:
    return None


def test_a_command_makes_events_of_a_state(store: SmallStore) -> None:
    result = run_command(store.within, create, {"customer_id": "a", "name": "Ada"})
    assert (result.version, result.events, result.epoch) == (1, 1, 1)
    assert store.state("Customer", "a") == {"name": "Ada"}
    assert run_command(store.within, pay, {"amount": "9.50"}).version == 2
    assert run_command(store.within, pay, {"amount": 1, "account": "main"}).version == 4
    assert store.state("Account", "main") == {"amount": 1, "balance": 10.5}
    assert run_command(store.within, nothing, {"account": "main"}).to_json() == {
        "epoch": 3,
        "version": 4,
        "position": 5,
        "events": 0,
    }


def test_a_refused_command_changes_nothing(store: SmallStore) -> None:
    run_command(store.within, create, {"customer_id": "a", "name": "Ada"})
    epoch = store.host.epoch
    for asked, given, message in (
        (create, {"customer_id": "a", "name": "Eve"}, "there already"),
        (pay, {"amount": 0}, "nothing to pay"),
    ):
        with pytest.raises(CommandRefused, match=message):
            run_command(store.within, asked, given)
    assert store.host.epoch == epoch


@pytest.mark.parametrize(
    "given", [{}, {"customer_id": "a"}, {"customer_id": "a", "name": 1}, {"customer_id": "a", "name": "A", "x": 1}]
)
def test_what_a_command_takes_is_checked(store: SmallStore, given: Any) -> None:
    with pytest.raises(EventsRejected, match="the command create takes customer_id, name"):
        run_command(store.within, create, given)
    assert store.host.epoch == 0


def test_a_mistake_in_the_arguments_is_told_as_one(store: SmallStore) -> None:
    with pytest.raises(BadArguments) as refused:
        run_command(store.within, create, {"customer": "a"})
    told = refused.value
    assert (told.code, told.message) == ("bad_arguments", "the command create does not take these arguments")
    assert told.detail == (
        "customer_id: Field required; name: Field required; customer: Extra inputs are not permitted"
    )
    problem = problem_of(told)
    assert (problem["status"], problem["code"], problem["command"]) == (422, "bad_arguments", "create")
    assert "rejections" not in problem


def test_a_command_that_is_overtaken_is_asked_again(store: SmallStore) -> None:
    seen: list[Any] = []

    @headrace.command("Counter")
    def add(state: Any, counter: str) -> Any:
        seen.append(state)
        if len(seen) < 3:
            store.append("Counter", counter, [event("Set", n=len(seen))])
        return event("Added", total=(state or {}).get("n", 0))

    result = run_command(store.within, add, {"counter": "c"})
    assert (result.version, result.attempts) == (3, 3)
    assert seen == [None, {"n": 1}, {"n": 2}]
    assert store.state("Counter", "c") == {"n": 2, "total": 2}


def test_a_command_that_is_always_overtaken_is_told(store: SmallStore) -> None:
    @headrace.command("Counter", attempts=3)
    def add(state: Any, counter: str) -> Any:
        store.append("Counter", counter, [event("Set")])
        return event("Added")

    with pytest.raises(VersionConflict):
        run_command(store.within, add, {"counter": "c"})


def test_the_same_key_again_has_the_first_result_though_the_rules_would_refuse(store: SmallStore) -> None:
    first = run_command(store.within, create, {"customer_id": "a", "name": "Ada"}, "k")
    again = run_command(store.within, create, {"customer_id": "a", "name": "Ada"}, "k")
    assert (again.version, again.events) == (first.version, first.events)
    both = [run_command(store.within, pay, {"amount": 5}, "p") for _ in range(2)]
    assert [(one.version, one.events) for one in both] == [(2, 2), (2, 2)]
    assert len(store.read()) == 3


def test_the_schema_is_that_of_the_types() -> None:
    assert pay.schema["required"] == ["amount"]
    assert pay.schema["properties"]["account"]["type"] == "string"
    assert create(None, "a", "Ada")["event_type"] == "CustomerCreated"


def test_what_cannot_be_a_command_is_told() -> None:
    with pytest.raises(SetupError, match="cannot be a command"):

        @headrace.command("A")
        def without(state: Any) -> None: ...

    with pytest.raises(SetupError, match="no argument other"):

        @headrace.command("A", id="other")
        def wrong(state: Any, a: str) -> None: ...


def test_commands_are_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from __future__ import annotations\nimport headrace\n"
        "@headrace.command('A')\ndef go(state, a: str, n: int = 1):\n    return []\n"
    )
    _, commands = load_commands(str(file))
    assert commands["go"].schema["properties"]["n"]["type"] == "integer"
    for bad in (str(tmp_path / "none.py"), "no_such_module_anywhere"):
        with pytest.raises(SetupError, match="cannot be loaded"):
            load_commands(bad)
