"""TLS on the way to a client: the context from Kafka's `ssl.` properties, and the channel that speaks it.

The kernel cannot encrypt what `sendfile` sends, so that a TLS channel reads log files in pieces and sends those.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import cast

from headwater_broker.log import FileRange
from headwater_broker.security import Principal
from headwater_broker.security.principal import USER
from headwater_broker.security.ssl_names import (
    MappingRule,
    distinguished_name,
    map_name,
    parse_mapping_rules,
)
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core
from headwater_broker.server.errors import UsageError
from headwater_broker.server.request_memory import RequestMemory
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.transport import Channel, read_range

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PIECE_BYTES = 256 * 1024


class TlsSettings:
    """What a listener's channels need for TLS.

    Attributes:
        context: The certificates, versions and ciphers.
        rules: How a client certificate's subject becomes a principal.
    """

    def __init__(self, settings: BrokerSettings, listener: str) -> None:
        """Reads a listener's `ssl.` properties and the files that they name.

        Raises:
            UsageError: One is missing or cannot be used.
        """
        self._get = partial(settings.of_listener, listener)
        self._listener = listener
        self.context = self._context()
        try:
            self.rules: tuple[MappingRule, ...] = parse_mapping_rules(
                self._get("ssl.principal.mapping.rules") or ""
            )
        except ValueError as error:
            raise UsageError(f"listener {listener}: ssl.principal.mapping.rules: {error}") from error

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load_own_certificate(context)
        self._load_trusted(context)
        versions = [each.strip() for each in (self._get("ssl.enabled.protocols") or "").split(",")]
        for version in versions:
            if version not in _VERSIONS:
                raise self._wrong("ssl.enabled.protocols", f"{version}: write {' or '.join(_VERSIONS)}")
        context.minimum_version = min(_VERSIONS[each] for each in versions)
        context.maximum_version = max(_VERSIONS[each] for each in versions)
        ciphers = self._get("ssl.cipher.suites")
        if ciphers:
            try:
                context.set_ciphers(":".join(_openssl_name(each.strip()) for each in ciphers.split(",")))
            except ssl.SSLError as error:
                raise self._wrong("ssl.cipher.suites", f"{ciphers}: {error.reason}") from error
        return context

    def _load_own_certificate(self, context: ssl.SSLContext) -> None:
        self._check_type("ssl.keystore.type")
        location = self._get("ssl.keystore.location")
        key, chain = self._get("ssl.keystore.key"), self._get("ssl.keystore.certificate.chain")
        password = self._get("ssl.key.password") or ""
        try:
            if location is not None:
                context.load_cert_chain(location, password=password)
            elif key is not None and chain is not None:
                # The library reads files only: one that has no name, so that the key is never on a disk.
                fd = os.memfd_create("keystore")
                try:
                    os.write(fd, f"{_with_lines(key)}\n{_with_lines(chain)}\n".encode())
                    context.load_cert_chain(f"/proc/self/fd/{fd}", password=password)
                finally:
                    os.close(fd)
            else:
                raise self._wrong(
                    "ssl.keystore.location", "name the PEM file of the private key and certificate"
                )
        except ssl.SSLError as error:
            what = location or "ssl.keystore.key"
            why = "is no PEM of a private key and its certificate, or the password is wrong"
            raise self._wrong("ssl.keystore.location", f"{what} {why}") from error
        except OSError as error:
            raise self._wrong("ssl.keystore.location", f"{location}: {error.strerror or error}") from error

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        self._check_type("ssl.truststore.type")
        client_auth = (self._get("ssl.client.auth") or "none").lower()
        if client_auth not in _CLIENT_AUTH:
            raise self._wrong("ssl.client.auth", f"{client_auth}: write none, requested or required")
        context.verify_mode = _CLIENT_AUTH[client_auth]
        location, text = self._get("ssl.truststore.location"), self._get("ssl.truststore.certificates")
        try:
            if location is not None:
                context.load_verify_locations(location)
            elif text is not None:
                context.load_verify_locations(cadata=_with_lines(text))
        except OSError as error:
            raise self._wrong("ssl.truststore.location", f"{location}: {error.strerror or error}") from error

    def _check_type(self, name: str) -> None:
        kind = self._get(name) or "PEM"
        if kind.upper() != "PEM":
            how = "openssl pkcs12 -in FILE -out FILE.pem -nodes"
            raise self._wrong(name, f"{kind} cannot be read here: make a PEM file of it ({how})")

    def _wrong(self, name: str, why: str) -> UsageError:
        return UsageError(f"listener {self._listener}: {name}: {why}")


def _with_lines(pem: str) -> str:
    """PEM from a properties file, where the ends of lines are often written as backslash and n."""
    return pem.replace("\\n", "\n")


def _openssl_name(cipher: str) -> str:
    """OpenSSL's name of a cipher suite that has the standard's, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if not cipher.startswith("TLS_") or "_WITH_" not in cipher:
        return cipher
    name = (
        cipher.removeprefix("TLS_")
        .replace("_WITH", "")
        .replace("AES_128", "AES128")
        .replace("AES_256", "AES256")
    )
    return name.replace("_", "-").replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")


class TlsChannel(Channel):
    """One client's socket with TLS over it."""

    _MORE = 0  # TLS takes no flags

    __slots__ = ("_is_greeted", "_rules", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        connection: Connection,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        on_closed: Callable[[Channel], None],
        memory: RequestMemory,
        tls: TlsSettings,
    ) -> None:
        self._tls = tls.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._rules = tls.rules
        self._is_greeted = False
        super().__init__(self._tls, connection, core, loop, on_closed, memory)

    def _on_readable(self) -> None:
        if not self._is_greeted:
            self._greet()
            return
        super()._on_readable()
        self._read_on()

    def _greet(self) -> None:
        """Goes on with the handshake."""
        self._loop.remove_writer(self.sock)
        self.last_active = self._loop.time()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self.sock, self._greet)
            return
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            self.refuse(f"the TLS handshake failed: {reason}")
            return
        self._is_greeted = True
        subject = cast(dict[str, tuple[tuple[tuple[str, str], ...], ...]], self._tls.getpeercert() or {}).get(
            "subject"
        )
        if subject:
            name = map_name(self._rules, distinguished_name(subject))
            if name is None:
                self.refuse("no rule of ssl.principal.mapping.rules is about the client's certificate")
                return
            self.connection.principal = Principal(USER, name)
        self._on_readable()

    def _read_on(self) -> None:
        """Comes back for bytes that are decrypted already: the kernel does not report those."""
        if self._reading and not self.connection.is_closed and self._tls.pending():
            self._loop.call_soon(self._on_readable)

    def _watch_reads(self, enabled: bool) -> None:
        super()._watch_reads(enabled)
        if enabled and self._is_greeted:
            self._read_on()

    def _send_file(self, file_range: FileRange) -> bool:
        while file_range.count:
            piece = read_range(file_range, min(file_range.count, _PIECE_BYTES))
            file_range.position += len(piece)
            file_range.count -= len(piece)
            if not self._send_bytes(piece, more=False):
                if file_range.count:
                    self._unsent.insert(1, file_range)
                return False
        return True
