"""Alerts to a webhook: what came to be wrong and what is right again, told until it is heard.

Only what was told and what is so now are remembered, so a receiver that is away costs no memory: when it is back, it
hears the difference. Each post also has all that is wrong, so that a receiver can hold to it whatever it missed; the
first of a process comes also where nothing is wrong: what an earlier process fired may be right again.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from headrace.feeds.webhook_transport import PinnedTransport
from headrace.serving.findings import Finding

_log = logging.getLogger("headrace.alerts")
_LOOK_SECONDS = 10.0
_LONGEST_PAUSE = 300.0
_TIMEOUT = 10.0
_JSON = {"content-type": "application/json"}

Look = Callable[[], Sequence[Finding]]


class Alerts:
    """Looks again and again, and tells what is new; at least once, later and later while nobody hears."""

    def __init__(
        self,
        url: str,
        home: str,
        look: Look,
        seconds: float = _LOOK_SECONDS,
        *,
        is_first: bool = False,
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self._url = url
        self._home = home
        self._look = look
        self._seconds = seconds
        self._told: dict[tuple[str, str], Finding] = {}
        # Whether what is so has been heard once; of a home that no process had before, nothing can have been fired.
        self._heard = is_first
        # Whether another process speaks for the home now: what this one said later would be the last word on it.
        self._is_lost = is_lost
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
        known = {one.name: one.level for one in self._told.values()}
        firing = [one for name, one in now.items() if known.get(name) != one.level]
        resolved = [one for name, one in self._told.items() if name not in now]
        if self._is_lost() or (self._heard and not firing and not resolved):
            return True
        try:
            self._post({"home": self._home, "firing": firing, "resolved": resolved, "all": list(now.values())})
        except Exception as error:
            # Whatever it is: who tells what is wrong goes on. Not the address, which may hold a secret, and so not the
            # error's own words.
            _log.warning("nobody hears the alerts: %s", type(error).__name__)
            return False
        self._told, self._heard = now, True
        return True

    def _post(self, body: Mapping[str, Any]) -> None:
        """Have the receiver take a body, in ASCII: a text may hold what no encoding of letters has."""
        content = json.dumps(body, default=lambda one: {name: _plain(text) for name, text in one.to_json().items()})
        # Bounded as a whole: a receiver that drips would otherwise have as long for each byte.
        transport = PinnedTransport(ssl.create_default_context(), allow_private=True)
        transport.deadline.begin(_TIMEOUT)
        with (
            httpx.Client(transport=transport, follow_redirects=False) as client,
            client.stream("POST", self._url, content=content.encode("ascii"), headers=_JSON) as answer,
        ):
            answer.raise_for_status()


def _plain(text: str) -> str:
    """A text without halves of letters, which readers of JSON refuse."""
    return text.encode("utf-8", "backslashreplace").decode()
