"""What brokers refuse for good: a login, or a certificate that is not theirs to show.

The library tells of it beside what was asked, which only runs out of time: without this, a wrong password would look
like a broker that does not answer, and would be tried for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import SourceError, SourceUnavailable

# What OpenSSL says of a certificate that no time will mend; others, as of a broker that goes, may pass.
_CERTIFICATE = "certificate verify failed"
# A password is right or wrong. A token or a ticket comes from a server that may be away for a while.
_BY_PASSWORD = ("PLAIN", "SCRAM-")


class Refusals:
    """Hears what a client of the library is told by brokers, and keeps what they refused."""

    def __init__(self, kafka: Any, servers: str, source: str, settings: Mapping[str, str]) -> None:
        self._codes: Any = kafka.KafkaError
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
        self._by_password = mechanism.upper().startswith(_BY_PASSWORD)
        self._servers = servers
        self._source = source
        self._heard: tuple[str, str, bool] | None = None

    def hear(self, error: Any) -> None:
        """Take what the library calls back with."""
        words = str(error.str())
        if error.code() in (self._codes._AUTHENTICATION, self._codes.SASL_AUTHENTICATION_FAILED):
            self._heard = "does not let the source in", words, self._by_password
        elif error.code() == self._codes._SSL and _CERTIFICATE in words.lower():
            self._heard = "shows a certificate that is not trusted", words, True

    def raise_heard(self) -> None:
        """Raise what was refused, if anything was."""
        heard, self._heard = self._heard, None
        if heard is None:
            return
        what, words, for_good = heard
        message, detail = f"Kafka at {self._servers} {what}", f"{words.rstrip('.')}."
        options = "see the options kafka.sasl.* and kafka.ssl.* of the source"
        if not for_good:
            raise SourceUnavailable(message, detail=detail, hint=f"it is tried again; {options}")
        mended = f"ALTER SOURCE {self._source} SET (...), then RESUME SOURCE {self._source}"
        raise SourceError(message, detail=detail, hint=f"{options}; {mended}")
