"""Who is let in by a registry: TLS, and HTTP's basic authentication."""

import base64
import binascii
import hmac
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What a registry asks of its clients.

    Attributes:
        username: The one user; empty to ask for none.
        password: The user's.
        certificate: The PEM file of the registry's certificate; None to speak HTTP.
        key: The PEM file of its key; None where that stands in the same file.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    certificate: Path | None = None
    key: Path | None = None

    def check_files(self) -> None:
        """Makes sure that the files can be used.

        Raises:
            UsageError: They cannot.
        """
        if self.certificate is None:
            return
        try:
            # An encrypted key is not asked for at the terminal, where nobody may sit.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certificate, self.key, password=lambda: ""
            )
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise UsageError(f"{self.key or self.certificate} cannot be used for TLS: {error}") from error

    def lets_in(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request's headers have the login that is asked for."""
        if not self.username:
            return True
        wanted = f"{self.username}:{self.password}".encode()
        return any(
            hmac.compare_digest(_login_in(value), wanted)
            for name, value in headers
            if name.lower() == b"authorization"
        )


def _login_in(header: bytes) -> bytes:
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        return b""
