"""TLS by files: a certificate and its key, read when the server begins and again when it is told to."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.errors import SetupError


class Certificate:
    """What the server proves itself with; connections from a reading on use what it found."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        # Of this Python: TLS 1.2 and newer, ciphers that keep past traffic secret.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.read()

    def read(self) -> None:
        """Read the files anew; where they cannot be used, what was read before stays in use."""
        certificate, key = self._files
        try:
            # Tried first: a certificate that does not fit its key must not take the place of one that does.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
            self.context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise SetupError(
                "the certificate cannot be used",
                detail=f"{certificate}, {key}: {getattr(error, 'strerror', None) or error}.",
                hint="give a certificate with its chain and its private key without a password, both in PEM",
            ) from None


def certificate_of(certificate: Path | None, key: Path | None) -> Certificate | None:
    """The certificate that two options name; none if neither is given."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SetupError("TLS needs two files", hint="give --tls-cert and --tls-key together")
    return Certificate(certificate, key)


def _no_password() -> str:
    raise ValueError("the key is protected by a password, and nobody is there to be asked")
