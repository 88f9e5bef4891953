"""Alerts to a webhook: what came to be wrong and what is right again, told until it is heard.

Only what was told and what is so now are remembered, so a receiver that is away costs no memory: when it is back, it
hears the difference.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Sequence

import httpx

from headrace.feeds.webhook_addresses import NameUnknown
from headrace.feeds.webhook_transport import PinnedTransport
from headrace.serving.findings import Finding

_log = logging.getLogger("headrace.alerts")
_LOOK_SECONDS = 10.0
_LONGEST_PAUSE = 300.0
_TIMEOUT = 10.0

Look = Callable[[], Sequence[Finding]]


class Alerts:
    """Looks again and again, and tells what is new; at least once, later and later while nobody hears."""

    def __init__(self, url: str, home: str, look: Look, seconds: float = _LOOK_SECONDS) -> None:
        self._url = url
        self._home = home
        self._look = look
        self._seconds = seconds
        self._told: dict[tuple[str, str], Finding] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-alerts", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_TIMEOUT + 1)

    def _run(self) -> None:
        pause = self._seconds
        while not self._over.wait(pause):
            pause = self._seconds if self.tell() else min(pause * 2, _LONGEST_PAUSE)

    def tell(self) -> bool:
        """Tell what changed since it was last heard; whether there is nothing left to tell."""
        try:
            now = {one.name: one for one in self._look()}
        except Exception as error:
            # The home may be closing; what is wrong with it then is told by whoever watches the process.
            _log.warning("what is wrong with the home is not known: %s", error)
            return False
        firing = [one for name, one in now.items() if name not in self._told]
        resolved = [one for name, one in self._told.items() if name not in now]
        if not firing and not resolved:
            return True
        body = {
            "home": self._home,
            "firing": [one.to_json() for one in firing],
            "resolved": [one.to_json() for one in resolved],
        }
        # Bounded as a whole: a receiver that drips would otherwise have as long for each byte.
        transport = PinnedTransport(ssl.create_default_context(), allow_private=True)
        transport.deadline.begin(_TIMEOUT)
        try:
            with (
                httpx.Client(transport=transport, follow_redirects=False) as client,
                client.stream("POST", self._url, json=body) as answer,
            ):
                answer.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, NameUnknown) as error:
            # Not the address, which may hold a secret, and so not the error's own words.
            _log.warning("nobody hears the alerts: %s", type(error).__name__)
            return False
        self._told = now
        return True
