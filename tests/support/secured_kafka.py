"""Apache Kafka's newest as a company has it, with TLS, ACLs, and SCRAM or OAuth; and a server of tokens."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from secured import PASSWORD, WAIT_S
from support import apache_kafka
from support.processes import free_port

_MODULES = "org.apache.kafka.common.security"
_ALLOW = AclPermissionType.ALLOW
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


@contextmanager
def secured_kafka(folder: Path, directory: Path, keys_url: str = "", session_ms: int = 0) -> Iterator[str]:
    """Its broker with SASL_SSL for SCRAM, alice's password and what she may do; gives the address.

    With the address of keys it takes tokens that are signed with one of them, and nothing else. A session ends after
    `session_ms`, if these are given.
    """
    secured = f"127.0.0.1:{free_port()}"
    prefix = "listener.name.sasl_ssl"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    if keys_url:
        tokens = f"{_MODULES}.oauthbearer.OAuthBearer"
        settings |= {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{tokens}LoginModule required;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{tokens}ValidatorCallbackHandler",
            f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys_url,
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": "https://tokens",
        }
    else:
        settings |= {
            f"{prefix}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        }
    if session_ms:
        settings[f"{prefix}.{'oauthbearer' if keys_url else 'scram-sha-512'}.connections.max.reauth.ms"] = (
            str(session_ms)
        )
    apache_kafka.require_jars(apache_kafka.NEWEST)
    with apache_kafka.running_kafka(
        directory,
        settings,
        heap="512m",
        version=apache_kafka.NEWEST,
        listeners=f"SASL_SSL://{secured}",
        java_options=[f"-D{_ALLOWED_URLS}={keys_url}"],
    ) as (_, plain):
        admin = AdminClient({"bootstrap.servers": plain})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", scram, PASSWORD.encode())]
        )
        topics = admin.create_topics([NewTopic("orders", 1), NewTopic("__headwater_ship", 1)])
        rules = [
            AclBinding(kind, "*", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.ALL, _ALLOW)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        for future in (*users.values(), *topics.values(), *admin.create_acls(rules).values()):
            future.result(WAIT_S)
        yield secured


@contextmanager
def token_server(key: Path) -> Iterator[str]:
    """A server of tokens for alice's credentials, below `/token`, signed with a key whose public part is at `/keys`."""
    modulus = _openssl("rsa", "-in", str(key), "-noout", "-modulus").decode().strip().partition("=")[2]
    public = {
        "kty": "RSA",
        "kid": "one",
        "alg": "RS256",
        "use": "sig",
        "e": "AQAB",
        "n": _base64(bytes.fromhex(modulus)),
    }

    class Tokens(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"keys": [public]})

        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            assert asked["grant_type"] == ["client_credentials"]
            now = int(time.time())
            claims = {"iss": "https://tokens", "sub": "alice", "aud": "kafka", "scope": "all"}
            claims |= {"iat": now, "exp": now + 3600}
            head = {"alg": "RS256", "kid": "one"}
            text = ".".join(_base64(json.dumps(each).encode()) for each in (head, claims))
            signature = _openssl("dgst", "-sha256", "-sign", str(key), given=text.encode())
            token = f"{text}.{_base64(signature)}"
            self._answer({"access_token": token, "token_type": "Bearer", "expires_in": 3600})

        def _answer(self, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """It prints nothing."""

    server = HTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _openssl(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=given, check=True, capture_output=True).stdout


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
