"""A broker as a company has it: TLS by an authority of its own, users of SCRAM, ACLs; and clients of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
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

from headwater_broker.testing import RunningBroker, broker
from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.sources.kafka_cluster import KafkaCluster

PASSWORD = 'correct horse "battery" \\ ${staple}'
"""With what a quoted text, a file of properties and a configuration provider each have a meaning for."""
_ADMIN = "admin-secret"
WAIT_S = 60


def certificates(directory: Path) -> Path:
    """A folder with two authorities, `ca.pem` and `other-ca.pem`, and of the first one the keys and certificates of a
    broker on 127.0.0.1, `broker.pem`, of one on another host, `elsewhere.pem`, and of a client, `alice.crt` and
    `alice.key`; the test is skipped without an openssl command."""
    if shutil.which("openssl") is None:
        pytest.skip("needs an openssl command to make certificates with")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes", "-days", "30")
    for name in ("ca", "other-ca"):
        openssl("req", "-x509", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    hosts = {"broker": "IP:127.0.0.1,DNS:localhost", "elsewhere": "DNS:example.org", "alice": "DNS:alice"}
    for name, alternatives in hosts.items():
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (directory / "alternatives").write_text(f"subjectAltName={alternatives}", encoding="ascii")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "alternatives", "-out", f"{name}.crt"
        )
        both = (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        (directory / f"{name}.pem").write_text(both)
    return directory


@dataclass(frozen=True)
class Secured:
    """A broker with TLS and SASL, and how its clients log in.

    Attributes:
        running: The broker.
        ca: The file of its authority.
    """

    running: RunningBroker
    ca: Path

    @property
    def bootstrap(self) -> str:
        """Its address."""
        return self.running.bootstrap

    def login(self, user: str = "alice", password: str = PASSWORD, **changes: Any) -> ClientLogin:
        """A user's login."""
        mechanism = "PLAIN" if user == "admin" else "SCRAM-SHA-512"
        values = {
            "protocol": "SASL_SSL",
            "mechanism": mechanism,
            "username": user,
            "password": _ADMIN if user == "admin" else password,
            "ca": self.ca.read_text(),
        }
        return ClientLogin(**(values | changes))

    def cluster(self, user: str = "alice", *, name: str = "", **changes: Any) -> KafkaCluster:
        """The cluster for a user."""
        section = f"cluster.{name}" if name else "client"
        return KafkaCluster(self.bootstrap, self.login(user, **changes), name, section)

    def environ(self, section: str = "CLIENT") -> dict[str, str]:
        """The settings of alice's login, as variables."""
        values = {
            "SECURITY_PROTOCOL": "SASL_SSL",
            "SASL_MECHANISM": "SCRAM-SHA-512",
            "SASL_USERNAME": "alice",
            "SASL_PASSWORD": PASSWORD,
            "SSL_CA_LOCATION": str(self.ca),
        }
        return {f"HEADWATER_{section}_{name}": value for name, value in values.items()}

    def admin(self) -> AdminClient:
        """An admin client of a super user."""
        return AdminClient(self.cluster("admin").rdkafka())

    def create(self, *topics: str, partitions: int = 1) -> None:
        """Makes topics."""
        admin = self.admin()  # its requests end with it
        for future in admin.create_topics([NewTopic(each, partitions) for each in topics]).values():
            future.result(WAIT_S)

    def allow(
        self, user: str, operation: AclOperation, name: str, kind: ResourceType = ResourceType.TOPIC
    ) -> None:
        """Lets a user do something."""
        rule = AclBinding(
            *(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*"),
            *(operation, AclPermissionType.ALLOW),
        )
        admin = self.admin()
        admin.create_acls([rule])[rule].result(WAIT_S)

    def send(self, topic: str, *values: str) -> None:
        """Sends records, as the super user."""
        producer = Producer(self.cluster("admin").rdkafka())
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0


@contextmanager
def secured_broker(folder: Path, **properties: str) -> Iterator[Secured]:
    """Our broker with TLS, SCRAM and ACLs, which allow nothing that is not allowed by name; alice has a password.

    Args:
        folder: The folder of `certificates`.
        properties: Further properties, their dots as two underscores.
    """
    given: Mapping[str, str] = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_admin="{_ADMIN}" user_alice="of another mechanism";'
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:admin",
        "num.partitions": "1",
        "auto.create.topics.enable": "false",
        "connection.failed.authentication.delay.ms": "1",
        **{name.replace("__", "."): value for name, value in properties.items()},
    }
    with broker(properties=dict(given)) as running:
        secured = Secured(running, folder / "ca.pem")
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        alice = UserScramCredentialUpsertion("alice", scram, PASSWORD.encode())
        admin = secured.admin()
        for future in admin.alter_user_scram_credentials([alice]).values():
            future.result(WAIT_S)
        yield secured


def files_with(text: str, *folders: Path) -> list[Path]:
    """The files below folders whose bytes hold a text, in UTF-8 or as JSON writes it."""
    spellings = {text.encode(), text.replace("\\", "\\\\").replace('"', '\\"').encode()}
    found = []
    for folder in folders:
        for root, _, names in os.walk(folder):
            for path in (Path(root) / name for name in names):
                data = path.read_bytes()
                found += [path] if any(each in data for each in spellings) else []
    return found
