"""The rules of customers: each command gets the customer's state, and returns events or a refusal."""

from __future__ import annotations

from typing import Any

import headrace

Event = dict[str, Any]


@headrace.command("Customer")
def create_customer(state: Any, customer_id: str, name: str, email: str, city: str) -> list[Event]:
    """A new customer."""
    if state is not None:
        raise headrace.CommandRefused(f"customer {customer_id} is there already", hint="choose another id")
    _refuse_no_email(email)
    return [{"event_type": "CustomerCreated", "event_data": {"name": name, "email": email, "address": {"city": city}}}]


@headrace.command("Customer")
def change_address(state: Any, customer_id: str, city: str, user: str = "") -> list[Event]:
    """A customer moves."""
    _refuse_absent(state, customer_id)
    if state["address"]["city"] == city:
        return []
    return [
        {"event_type": "CustomerAddressChanged", "event_data": {"address": {"city": city}}, "metadata": {"user": user}}
    ]


@headrace.command("Customer")
def change_email(state: Any, customer_id: str, email: str, user: str = "") -> list[Event]:
    """A customer has another address for mails."""
    _refuse_absent(state, customer_id)
    _refuse_no_email(email)
    return [{"event_type": "CustomerEmailUpdated", "event_data": {"email": email}, "metadata": {"user": user}}]


@headrace.command("Customer")
def delete_customer(state: Any, customer_id: str, user: str = "") -> list[Event]:
    """A customer leaves."""
    _refuse_absent(state, customer_id)
    return [{"event_type": "CustomerDeleted", "metadata": {"user": user}}]


def _refuse_absent(state: Any, customer_id: str) -> None:
    if state is None:
        raise headrace.CommandRefused(f"there is no customer {customer_id}", hint="create_customer makes one")


def _refuse_no_email(email: str) -> None:
    if email.count("@") != 1:
        raise headrace.CommandRefused(f"{email} is no address for mails", hint="write name@example.com")
