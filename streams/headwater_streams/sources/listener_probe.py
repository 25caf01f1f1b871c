"""What a broker's port speaks: TLS or plain text, whether it asks who its clients are, and what its certificate lacks.

A broker that is spoken to in the wrong way closes the connection, and a client cannot tell that from a broker that
stops. So the port is asked by hand: a TLS handshake, and Kafka's SaslHandshake, which every listener answers, one
without SASL by an error. It is asked only after a client got no answer.
"""

import socket
import ssl
import struct
from dataclasses import dataclass

from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.storage.private_file import private_file

_TIMEOUT_S = 2.0
_SASL_HANDSHAKE, _CORRELATION = 17, 1
_NO_SASL_HERE = 34  # ILLEGAL_SASL_STATE
_MOST_BYTES = 10_000


@dataclass(frozen=True)
class Listener:
    """What a port speaks.

    Attributes:
        has_tls: Whether it speaks TLS; None where that did not come out.
        certificate_fault: Why its certificate is not trusted, in OpenSSL's words; empty where it is.
        mechanisms: How clients may say who they are: empty where the port does not ask, None where that did not come
            out.
    """

    has_tls: bool | None = None
    certificate_fault: str = ""
    mechanisms: tuple[str, ...] | None = None


def probe(bootstrap: str, login: ClientLogin) -> Listener | None:
    """What the first broker speaks that takes a connection; None where none does.

    Args:
        bootstrap: The brokers, `host:port`, several with commas.
        login: The client, whose authorities are trusted and whose certificate is shown.
    """
    for address in bootstrap.split(","):
        # A cloud service writes SASL_SSL://HOST:PORT, which both clients take.
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        place = host.strip("[]"), int(port) if port.isdecimal() else 0
        try:
            socket.create_connection(place, timeout=_TIMEOUT_S).close()
        except OSError:
            continue
        asked = (_by_tls, _in_plain_text) if login.has_tls else (_in_plain_text, _by_tls)
        found = asked[0](place, login)
        return found if found is not None else asked[1](place, login) or Listener()
    return None


def _in_plain_text(place: tuple[str, int], _: ClientLogin) -> Listener | None:
    try:
        with socket.create_connection(place, timeout=_TIMEOUT_S) as connection:
            mechanisms = _mechanisms(connection)
    except TimeoutError:  # it takes connections and says nothing
        return Listener()
    except OSError:
        return None
    return None if mechanisms is None else Listener(has_tls=False, mechanisms=mechanisms)


def _by_tls(place: tuple[str, int], login: ClientLogin) -> Listener | None:
    try:
        with (
            socket.create_connection(place, timeout=_TIMEOUT_S) as connection,
            _context(login).wrap_socket(connection, server_hostname=place[0]) as secured,
        ):
            try:
                return Listener(has_tls=True, mechanisms=_mechanisms(secured))
            except OSError:  # in TLS 1.3 a certificate that the broker misses is missed after the handshake
                return Listener(has_tls=True)
    except ssl.SSLCertVerificationError as error:
        return Listener(has_tls=True, certificate_fault=str(error.verify_message))
    except ssl.SSLError as error:
        # An alert is TLS; whatever else came is not.
        return Listener(has_tls=True) if "ALERT" in str(error.reason) else None
    except TimeoutError:
        return Listener()
    except OSError:
        return None


def _context(login: ClientLogin) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=login.ca or None)
        if login.certificate:
            certificate, key = private_file(login.certificate), private_file(login.key)
            context.load_cert_chain(certificate, key, login.key_password or "")
    except (ssl.SSLError, ValueError):  # what is wrong with them librdkafka says itself
        context = ssl.create_default_context()
    if not login.has_tls:  # only whether it is TLS matters
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not login.checks_hostname:
        context.check_hostname = False
    return context


def _mechanisms(connection: socket.socket) -> tuple[str, ...] | None:
    """The mechanisms that a listener names; none of one without SASL, and None where the answer is no answer."""
    body = struct.pack(">hhih", _SASL_HANDSHAKE, 0, _CORRELATION, -1) + _text("?")
    connection.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 10 <= size <= _MOST_BYTES:
        return None
    return read_mechanisms(_exactly(connection, size))


def read_mechanisms(answer: bytes) -> tuple[str, ...] | None:
    """The mechanisms in an answer to a SaslHandshake, without its length; see `_mechanisms`.

    Example:
        >>> read_mechanisms(b"\\0\\0\\0\\1" b"\\0\\x21" b"\\0\\0\\0\\1" b"\\0\\5PLAIN")
        ('PLAIN',)
    """
    correlation, error, count = struct.unpack_from(">ihi", answer)
    if correlation != _CORRELATION:
        return None
    if error == _NO_SASL_HERE:
        return ()
    names, position = list[str](), 10
    for _ in range(max(count, 0)):
        if position + 2 > len(answer):
            return None
        (length,) = struct.unpack_from(">h", answer, position)
        names.append(answer[position + 2 : position + 2 + length].decode("utf-8", "replace"))
        position += 2 + length
    return tuple(names)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        data += part
    return data
