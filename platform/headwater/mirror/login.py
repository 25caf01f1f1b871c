"""How a connection of the mirror's own says who it is: TLS, then SASL PLAIN or SCRAM (RFC 5802)."""

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Generator

from headwater.mirror.errors import MirrorError
from headwater_streams.sources.client_login import PLAIN, SCRAM, ClientLogin
from headwater_streams.storage.private_file import private_file

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def require_known(login: ClientLogin, section: str) -> None:
    """Requires a mechanism that the mirror speaks.

    Raises:
        MirrorError: It is another one.
    """
    if login.has_sasl and login.mechanism not in (PLAIN, *SCRAM):
        raise MirrorError(
            f"{section}.sasl_mechanism is {login.mechanism}, which headwater mirror does not speak: give it a user of "
            f"{PLAIN} or {' or '.join(SCRAM)}"
        )


def tls_context(login: ClientLogin, section: str) -> ssl.SSLContext | None:
    """What a connection is secured with; None in plain text.

    Raises:
        MirrorError: A certificate or a key is none.
    """
    if not login.has_tls:
        return None
    try:
        context = ssl.create_default_context(cadata=login.ca or None)
        context.check_hostname = login.checks_hostname
        if login.certificate:
            certificate, key = private_file(login.certificate), private_file(login.key)
            context.load_cert_chain(certificate, key, login.key_password or "")
    except (ssl.SSLError, ValueError) as error:
        raise MirrorError(f"the section {section} of the settings: its certificates: {error}") from error
    return context


def exchange(login: ClientLogin) -> Generator[bytes, bytes, None]:
    """What a client says in turn, given what the broker answers.

    Raises:
        ValueError: The broker's answer is none, or does not prove that it knows the password.
    """
    if login.mechanism == PLAIN:
        yield f"\0{login.username}\0{login.password}".encode()
        return
    name = _HASHES[login.mechanism]
    nonce = secrets.token_hex(16)
    user = login.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    answer = (yield f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in answer.split(","))
    if not parts["r"].startswith(nonce):
        raise ValueError("the broker answers another client")
    salted = hashlib.pbkdf2_hmac(name, login.password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    final = f"c=biws,r={parts['r']}"
    signed = f"{first},{answer},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    last = (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    proved = dict(part.split("=", 1) for part in last.split(",")).get("v", "")
    if not hmac.compare_digest(base64.b64decode(proved), expected):
        raise ValueError("the broker does not know the password")
