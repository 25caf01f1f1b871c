"""How a connection of the mirror's own says who it is: TLS, then SASL.

PLAIN is RFC 4616, SCRAM RFC 5802, OAUTHBEARER RFC 7628 with a token of the client's credentials (RFC 6749, 4.4).
"""

import base64
import hashlib
import hmac
import json
import secrets
import ssl
from collections.abc import Generator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from headwater.mirror.errors import AwayError, MirrorError
from headwater_streams.sources.client_login import OAUTH, PLAIN, ClientLogin
from headwater_streams.storage.private_file import private_file

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_LEAST_ITERATIONS = 4096
"""As RFC 7677 and Kafka's own client have it."""
_TOKEN_S, _SAID_BYTES, _SERVER_FAULT = 15.0, 500, 500


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
    if login.mechanism == OAUTH:
        extensions = "".join(f"{name}={value}\x01" for name, value in login.extensions.items())
        refused = yield f"n,,\x01auth=Bearer {token_of(login)}\x01{extensions}\x01".encode()
        if refused:
            yield b"\x01"  # the broker says only then that the login failed
            raise ValueError(refused.decode(errors="replace"))
        return
    name = _HASHES[login.mechanism]
    nonce = secrets.token_hex(16)
    user = login.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    answer = (yield f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in answer.split(","))
    if not parts["r"].startswith(nonce):
        raise ValueError("the broker answers another client")
    if int(parts["i"]) < _LEAST_ITERATIONS:
        raise ValueError(f"the broker asks for {parts['i']} iterations, which would lay the password open")
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


def token_of(login: ClientLogin) -> str:
    """A new token.

    Raises:
        AwayError: The server of tokens does not answer.
        MirrorError: It refuses, or gives none.
    """
    scheme = urlsplit(login.token_url).scheme
    if scheme not in ("http", "https"):
        raise MirrorError(f"{login.token_url} is no address of a server of tokens: give one as https://...")
    asked = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    basic = base64.b64encode(f"{login.client_id}:{login.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    request = Request(login.token_url, urlencode(asked).encode(), headers)  # noqa: S310 - the scheme was checked
    context = ssl.create_default_context(cafile=login.token_ca or None) if scheme == "https" else None
    try:
        with urlopen(request, timeout=_TOKEN_S, context=context) as response:  # noqa: S310
            return str(json.loads(response.read())["access_token"])
    except HTTPError as error:
        said = error.read(_SAID_BYTES).decode(errors="replace").strip()
        message = (
            f"no token for {login.client_id!r} comes from {login.token_url}: HTTP status {error.code} {said}"
        )
        raise (AwayError if error.code >= _SERVER_FAULT else MirrorError)(message.strip()) from error
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise AwayError(f"no token for {login.client_id!r} comes from {login.token_url} ({why})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise MirrorError(f"what answers at {login.token_url} is no server of tokens") from error
