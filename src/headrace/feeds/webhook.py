"""Webhooks as the sink of a feed: signed batches of events to a URL, and to no place inside the house."""

from __future__ import annotations

import logging
import re
import ssl
import threading
from collections.abc import Mapping
from typing import Any

import httpx

from headrace.errors import FeedError
from headrace.feeds.sink import Delivery, SinkUnavailable, Target
from headrace.feeds.webhook_addresses import AddressRefused, NameUnknown, Resolver, judged_addresses
from headrace.feeds.webhook_delivery import Request, WebhookDelivery
from headrace.feeds.webhook_signing import read_secrets
from headrace.feeds.webhook_transport import PinnedTransport

_HEADER = "header."
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
# What the request itself needs, or what a receiver would trust.
_OURS = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    }
)
# Their values are secrets.
_SECRET_HEADERS = ("authorization", "cookie", "x-api-key", "api-key", "apikey", "x-auth-key")
# A name that does not answer so fast is judged when it is connected to.
_LOOK_SECONDS = 2.0
_SECONDS = {"timeout_ms": 30.0, "connect_timeout_ms": 10.0}


def _has_no_secret(record: logging.LogRecord) -> bool:
    """Drop what httpx logs of the requests of feeds, whose URLs are secrets."""
    return not (record.threadName or threading.current_thread().name).startswith("headrace-feed-")


logging.getLogger("httpx").addFilter(_has_no_secret)


class WebhookSink:
    """One URL a feed, at least once."""

    keyword = "WEBHOOK"
    options: Mapping[str, str] = {
        "secret": "One or more secrets of Standard Webhooks (whsec_...), separated by spaces; each signs.",
        "token": "A bearer token for the Authorization header.",
        "header.*": "A further header, such as 'header.x-tenant'.",
        "gzip": "Whether bodies are compressed.",
        "timeout_ms": "How long a request may take in all: 30000 by default.",
        "connect_timeout_ms": "How long the connection may take of that: 10000 by default.",
        "allow_insecure": "Whether the URL may be one of http: what is sent can then be read and changed on its way.",
        "allow_private": "Whether private, loopback and link-local addresses may be reached.",
        "ca_cert": "The path of certificates (PEM) that are trusted in place of the machine's.",
        "client_cert": "The path of a certificate (PEM) by which the receiver knows us.",
        "client_key": "The path of its key, if that is in a file of its own.",
    }
    secrets: frozenset[str] = frozenset({"secret", "token", *(f"{_HEADER}{name}" for name in _SECRET_HEADERS)})

    def __init__(self, resolve: Resolver | None = None) -> None:
        self._resolve = resolve

    def check(self, target: Target) -> None:
        """Refuse URLs that no request may go to, and options that make none."""
        options = target.options
        for name in ("gzip", "allow_insecure", "allow_private"):
            if not isinstance(options.get(name, False), bool):
                raise FeedError(f"{name} cannot be {options[name]!r}", hint=f"write {name} = true or {name} = false")
        for name in _SECONDS:
            number = options.get(name, 1_000)
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 600_000:
                raise FeedError(f"{name} cannot be {number!r}", hint=f"write milliseconds, as in {name} = 5000")
        url = _url(target.location, bool(options.get("allow_insecure", False)))
        _request(target, url)
        try:
            _context(options)
        except (OSError, ssl.SSLError) as error:
            raise FeedError("the certificates of the webhook cannot be read", detail=f"{error}.") from error

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Refuse a receiver at an address that may not be reached."""
        url = _url(location, bool(options.get("allow_insecure", False)))
        try:
            port = url.port or (443 if url.scheme == "https" else 80)
            judged_addresses(
                url.host, port, bool(options.get("allow_private", False)), self._resolve, seconds=_LOOK_SECONDS
            )
        except AddressRefused as error:
            raise FeedError(
                "the webhook is at an address that is refused",
                detail=f"{error}.",
                hint="name a receiver in the open, or write allow_private = true if it is meant",
            ) from error
        except NameUnknown:
            # It may be known later, and is judged then.
            pass

    def open(self, target: Target) -> Delivery:
        """Make ready; nothing is asked of the receiver yet."""
        url = _url(target.location, bool(target.options.get("allow_insecure", False)))
        try:
            context = _context(target.options)
        except (OSError, ssl.SSLError) as error:
            raise SinkUnavailable(f"the certificates of the webhook cannot be read: {error}") from error
        transport = PinnedTransport(context, bool(target.options.get("allow_private", False)), self._resolve)
        return WebhookDelivery(target, _request(target, url), transport)

    def forget(self, target: Target) -> None:
        """A receiver keeps nothing for us."""


WEBHOOK = WebhookSink()


def _url(location: str, allow_insecure: bool) -> httpx.URL:
    try:
        url = httpx.URL(location)
    except (httpx.InvalidURL, UnicodeError, ValueError):
        raise FeedError("the webhook's URL cannot be read", hint="write 'https://host/path'") from None
    if url.scheme not in ("https", "http") or not url.host or not 0 < (url.port or 443) < 65_536:
        raise FeedError("the webhook has no URL of https", hint="write 'https://host/path'")
    if url.scheme == "http" and not allow_insecure:
        raise FeedError(
            "the webhook's URL is one of http",
            detail="What is sent to it can be read and changed on its way.",
            hint="write https://, or allow_insecure = true if it is meant",
        )
    if url.userinfo:
        raise FeedError(
            "the webhook's URL has a user or a password in it",
            detail="What a statement says stays in the ledger, in backups and in SHOW.",
            hint="use token = 'env:NAME', or 'header.authorization' = 'env:NAME'; the whole URL may be 'env:NAME', too",
        )
    if url.fragment:
        raise FeedError("the webhook's URL has a fragment, which no receiver sees", hint="leave out # and all after it")
    return url


def _request(target: Target, url: httpx.URL) -> Request:
    options = target.options
    headers: dict[str, str] = {}
    for option, value in options.items():
        if not option.startswith(_HEADER):
            continue
        name = option[len(_HEADER) :]
        if name != name.lower():
            # By one writing of a name it is known whether its value is a secret.
            raise FeedError(f"header {name!r} has large letters", hint=f"write '{_HEADER}{name.lower()}'")
        if not _NAME.fullmatch(name) or name in _OURS:
            raise FeedError(f"header {name!r} cannot be given", hint="leave it out")
        headers[name] = _header_value(option, value)
    if "token" in options:
        if "authorization" in headers:
            raise FeedError("both token and header.authorization are given", hint="leave one of them out")
        headers["authorization"] = f"Bearer {_header_value('token', options['token'])}"
    if "client_key" in options and "client_cert" not in options:
        raise FeedError("client_key is given without client_cert", hint="add client_cert = '/path/to/certificate.pem'")
    keys = read_secrets(str(options["secret"])) if "secret" in options else []
    if "secret" in options and not keys:
        raise FeedError("the secret of the webhook is empty", hint="make one: echo whsec_$(openssl rand -base64 32)")
    seconds = {name: options[name] / 1000 if name in options else usual for name, usual in _SECONDS.items()}
    return Request(
        url, headers, keys, bool(options.get("gzip", False)), seconds["timeout_ms"], seconds["connect_timeout_ms"]
    )


def _header_value(option: str, value: Any) -> str:
    text = str(value)
    if not _VALUE.fullmatch(text):
        # Never the value: it may be a secret.
        raise FeedError(f"option {option} has letters that no header can have", hint="use printable ASCII")
    return text


def _context(options: Mapping[str, Any]) -> ssl.SSLContext:
    authorities = options.get("ca_cert")
    context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    if "client_cert" in options:
        key = options.get("client_key")
        context.load_cert_chain(str(options["client_cert"]), None if key is None else str(key))
    return context
