"""What the mirror says as it logs in: SCRAM by the example of RFC 7677, and OAuth's token and its refusals."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from headwater.mirror import login as login_module
from headwater.mirror.errors import AwayError, MirrorError
from headwater.mirror.login import exchange, token_of
from headwater_streams.sources.client_login import ClientLogin

NONCE = "rOprNGfwEbeRWgbNEkqO"
WHOLE_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={WHOLE_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
OF_SCRAM = ClientLogin(protocol="SASL_SSL", mechanism="SCRAM-SHA-256", username="user", password="pencil")


def test_mirror_login_plain_is_one_message() -> None:
    steps = exchange(ClientLogin(protocol="SASL_SSL", mechanism="PLAIN", username="a", password="b"))

    assert list(steps) == [b"\0a\0b"]


def test_mirror_login_scram_is_that_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module.secrets, "token_hex", lambda _: NONCE)
    steps = exchange(OF_SCRAM)

    assert next(steps) == f"n,,n=user,r={NONCE}".encode()
    final = f"c=biws,r={WHOLE_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert steps.send(CHALLENGE) == final.encode()
    with pytest.raises(StopIteration):
        steps.send(PROOF)


@pytest.mark.parametrize("proof", [b"v=AAAA", b"e=other-error", b"v="])
def test_mirror_login_scram_of_a_broker_that_does_not_know_the_password_is_refused(
    monkeypatch: pytest.MonkeyPatch, proof: bytes
) -> None:
    monkeypatch.setattr(login_module.secrets, "token_hex", lambda _: NONCE)
    steps = exchange(OF_SCRAM)
    next(steps)
    steps.send(CHALLENGE)

    with pytest.raises(ValueError, match="does not know the password"):
        steps.send(proof)


def test_mirror_login_scram_answer_to_another_client_is_refused() -> None:
    steps = exchange(OF_SCRAM)
    next(steps)

    with pytest.raises(ValueError, match="another client"):
        steps.send(CHALLENGE)


def test_mirror_login_scram_of_few_iterations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module.secrets, "token_hex", lambda _: NONCE)
    steps = exchange(OF_SCRAM)
    next(steps)

    with pytest.raises(ValueError, match="asks for 1 iterations"):
        steps.send(CHALLENGE.replace(b"i=4096", b"i=1"))


class Tokens(BaseHTTPRequestHandler):
    """Answers `/token`, and fails elsewhere as the path says."""

    asked: list[tuple[str | None, dict[str, list[str]]]]

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.asked.append((self.headers["Authorization"], body))
        status = 200 if self.path in ("/token", "/page") else int(self.path[1:])
        answer = b"<html>" if self.path == "/page" else json.dumps({"access_token": "t1"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """It prints nothing."""


@contextmanager
def token_server() -> Iterator[str]:
    Tokens.asked = []
    server = HTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def of_oauth(url: str, scope: str = "") -> ClientLogin:
    return ClientLogin(
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        token_url=url,
        client_id="hw",
        client_secret="s",
        scope=scope,
        extensions={"logicalCluster": "lkc-1"},
    )


def test_mirror_login_oauth_sends_a_token_of_the_clients_credentials_and_extensions() -> None:
    with token_server() as url:
        steps = exchange(of_oauth(f"{url}/token", scope="kafka all"))
        first = next(steps)
        with pytest.raises(StopIteration):
            steps.send(b"")

    assert first == b"n,,\x01auth=Bearer t1\x01logicalCluster=lkc-1\x01\x01"
    basic = f"Basic {b64encode(b'hw:s').decode()}"
    assert Tokens.asked == [(basic, {"grant_type": ["client_credentials"], "scope": ["kafka all"]})]


def test_mirror_login_oauth_that_a_broker_refuses_says_what_it_said() -> None:
    with token_server() as url:
        steps = exchange(of_oauth(f"{url}/token"))
        next(steps)
        assert steps.send(b'{"status":"invalid_token"}') == b"\x01"
        with pytest.raises(ValueError, match="invalid_token"):
            steps.send(b"")


@pytest.mark.parametrize(
    ("path", "error", "sentence"),
    [
        ("/401", MirrorError, r"no token for 'hw' comes from .*/401: HTTP status 401"),
        ("/503", AwayError, r"no token for 'hw' comes from .*/503: HTTP status 503"),
        ("/page", MirrorError, r"what answers at .*/page is no server of tokens"),
    ],
)
def test_mirror_login_oauth_without_a_token_says_why(
    path: str, error: type[Exception], sentence: str
) -> None:
    with token_server() as url, pytest.raises(error, match=sentence):
        token_of(of_oauth(url + path))


def test_mirror_login_oauth_server_that_is_away_is_waited_for() -> None:
    with pytest.raises(AwayError, match=r"no token for 'hw' comes from http://127\.0\.0\.1:1/token"):
        token_of(of_oauth("http://127.0.0.1:1/token"))


def test_mirror_login_oauth_url_of_a_file_is_refused() -> None:
    with pytest.raises(MirrorError, match="give one as https"):
        token_of(of_oauth("file:///etc/passwd"))
