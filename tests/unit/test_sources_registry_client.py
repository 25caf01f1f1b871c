"""What a client of a registry sends and what it makes of answers, over HTTP and TLS of the standard library."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater_streams.sources.registry_client import (
    NoRegistryError,
    RefusedByRegistryError,
    RegistryClient,
    RegistryLogin,
)
from secured import certificates

NAME, SECRET = "key", "pässword:with colon"
SEE = "see registry.username and registry.password in the settings"
NOT_IN = f"the registry at URL does not let this client in ({{}}): {SEE}"
LOGIN = RegistryLogin(username=NAME, password=SECRET)


@contextmanager
def served(answer: tuple[int, bytes], tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers all requests alike, and the headers that came."""
    came: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers)
            status, body = answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def error_of(status: int, body: bytes) -> str:
    with served((status, body)) as (url, _):
        with pytest.raises((NoRegistryError, RefusedByRegistryError)) as error:
            RegistryClient(url).ask("GET", "schemas", "ids", "1")
        return f"{type(error.value).__name__}: {str(error.value).replace(url, 'URL')}"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "Schema 1 not found", "RefusedByRegistryError: Schema 1 not found"),
        (409, "incompatible", "RefusedByRegistryError: incompatible"),
        (422, "no schema", "RefusedByRegistryError: no schema"),
        (500, "broken", "NoRegistryError: the registry at URL fails: broken"),
        (
            401,
            "Unauthorized",
            f"NoRegistryError: {NOT_IN.format('Unauthorized')}",
        ),
        (
            403,
            None,
            f"NoRegistryError: {NOT_IN.format('Forbidden')}",
        ),
        (429, None, "NoRegistryError: the registry at URL does not answer now: Too Many Requests"),
        (404, None, "NoRegistryError: what answers at URL is no schema registry: HTTP status 404"),
        (502, None, "NoRegistryError: what answers at URL is no schema registry: HTTP status 502"),
    ],
)
def test_only_what_a_registry_knows_is_its_answer(status: int, message: str | None, kind: str) -> None:
    body = b"<html>" if message is None else json.dumps({"error_code": status, "message": message}).encode()
    assert error_of(status, body) == kind


def test_a_login_is_sent_and_that_of_the_address_goes_before() -> None:
    with served((200, b"[]")) as (url, came):
        RegistryClient(url, login=LOGIN).ask("GET", "subjects")
        RegistryClient(url.replace("://", "://a:b%40c@"), login=LOGIN).ask("GET", "subjects")
        RegistryClient(url).ask("GET", "subjects")
    expected = [f"Basic {base64.b64encode(each.encode()).decode()}" for each in (f"{NAME}:{SECRET}", "a:b@c")]
    assert [each["Authorization"] for each in came] == [*expected, None]
    assert SECRET not in repr(LOGIN)


def test_tls_trusts_the_authority_that_is_named_and_shows_a_certificate(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files / "ca.pem"))
    tls.load_cert_chain(files / "broker.crt", files / "broker.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    trusting = RegistryLogin(ssl_ca_location=str(files / "ca.pem"))
    known = replace(
        trusting,
        ssl_certificate_location=str(files / "alice.crt"),
        ssl_key_location=str(files / "alice.key"),
    )
    with served((200, b'["s"]'), tls) as (url, _):
        assert RegistryClient(url, login=known).ask("GET", "subjects") == ["s"]
        with pytest.raises(NoRegistryError, match="no registry answers"):
            RegistryClient(url, login=trusting).ask("GET", "subjects")
        with pytest.raises(NoRegistryError, match="CERTIFICATE_VERIFY_FAILED"):
            RegistryClient(url).ask("GET", "subjects")


@pytest.mark.parametrize(
    "login", [{"ssl_ca_location": "{}"}, {"ssl_certificate_location": "{}"}, {"ssl_ca_location": "none.pem"}]
)
def test_a_file_that_is_none_is_named(login: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "x.pem"
    file.write_text("no PEM", encoding="utf-8")
    given = RegistryLogin(**{name: value.format(file) for name, value in login.items()})
    (setting,) = login
    with pytest.raises(ValueError, match=rf"registry\.{setting}: .*\.pem cannot be used for TLS: "):
        RegistryClient("https://r", login=given)
