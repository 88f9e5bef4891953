"""Which addresses a webhook may reach: those of the open Internet, unless its statement allows others.

A name is resolved once for each connection, all its addresses are judged, and the connection goes to one that was
judged: what the name is said to be a moment later changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# The addresses of a host and port, as getaddrinfo finds them.
Resolver = Callable[[str, int], Sequence[str]]

# Ways in which an IPv6 address stands for an IPv4 one, which another machine then reaches for us.
_STANDING_FOR_OTHERS = {
    "an IPv4 address in the clothes of IPv6": ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96"),
    "an address of NAT64": ("64:ff9b::/96", "64:ff9b:1::/48"),
    "an address of a tunnel": ("2002::/16", "2001::/32"),
}
_NETWORKS = [(ipaddress.IPv6Network(text), what) for what, texts in _STANDING_FOR_OTHERS.items() for text in texts]
# For special purposes; which of them Python knows differs with its release.
_SPECIAL_NETWORKS = (
    *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24"),
    *("198.18.0.0/15", "240.0.0.0/4", "100::/64"),
)
_SPECIAL = [ipaddress.ip_network(text) for text in _SPECIAL_NETWORKS]


class AddressRefused(Exception):
    """An address that a webhook may not reach."""


class NameUnknown(Exception):
    """A name that could not be resolved, or not in time."""


def reason_to_refuse(text: str) -> str | None:
    """Why an address is none of the open Internet; None if it is one."""
    try:
        address: IpAddress = ipaddress.ip_address(text)
    except ValueError:
        return "no address"
    for what, asked in (
        ("an unspecified address", address.is_unspecified),
        ("a loopback address", address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("a multicast address", address.is_multicast),
    ):
        if asked:
            return what
    if isinstance(address, ipaddress.IPv6Address):
        for network, what in _NETWORKS:
            if address in network:
                return what
        if address.is_site_local:
            return "a private address"
    if address.is_private:
        return "a private address"
    if address.is_reserved or not address.is_global or any(address in network for network in _SPECIAL):
        return "no address of the open Internet"
    return None


def judged_addresses(
    host: str, port: int, allow_private: bool, resolve: Resolver | None = None, seconds: float = 10.0
) -> Sequence[str]:
    """The addresses of a host, in the order in which to try them; `AddressRefused` if any may not be reached."""
    found = (resolve or system_resolver(seconds))(host, port)
    if not found:
        raise NameUnknown(f"{host} has no address")
    if not allow_private:
        for address in found:
            if (reason := reason_to_refuse(address)) is not None:
                what = address if address == host else f"{host} is {address}, which"
                raise AddressRefused(f"{what} is {reason}: allow_private = true would allow it")
    return found


def system_resolver(seconds: float) -> Resolver:
    """The machine's own resolver, which is given so long: by itself it may take minutes."""

    def resolve(host: str, port: int) -> Sequence[str]:
        found: list[str] = []
        failed: list[Exception] = []

        def ask() -> None:
            try:
                answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
                found.extend(dict.fromkeys(str(answer[4][0]) for answer in answers))
            except (OSError, UnicodeError) as error:
                failed.append(error)

        asking = threading.Thread(target=ask, name="headrace-webhook-resolver", daemon=True)
        asking.start()
        asking.join(max(0.0, seconds))
        if asking.is_alive():
            raise NameUnknown(f"{host} was not resolved within {seconds:.0f} seconds")
        if failed:
            raise NameUnknown(f"{host} cannot be resolved: {failed[0]}")
        return found

    return resolve
