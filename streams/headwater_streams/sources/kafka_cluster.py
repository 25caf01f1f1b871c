"""A cluster that jobs read, and what a client is given to reach it: librdkafka here, Kafka's Java client in Spark."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.base.topics import bare_topic
from headwater_streams.sources.client_faults import Complaint, diagnosis, may_pass, refusal
from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.sources.client_properties import (
    java_properties,
    java_secrets,
    rdkafka_properties,
    secrets_text,
)
from headwater_streams.sources.listener_probe import probe
from headwater_streams.storage.private_file import private_file


@dataclass(frozen=True)
class KafkaCluster:
    """A cluster.

    Attributes:
        bootstrap: Its brokers, `host:port`, several with commas; empty where none is known.
        login: How clients reach them.
        name: What topics call it; empty for the one that is meant where none is named.
        section: Which section of the settings it comes from, for messages.
    """

    bootstrap: str
    login: ClientLogin = field(default_factory=ClientLogin)
    name: str = ""
    section: str = "client"

    def rdkafka(self, complaints: list[Complaint] | None = None) -> dict[str, Any]:
        """What a client of librdkafka starts from.

        Args:
            complaints: Gets what the client's connections complain of.
        """
        properties: dict[str, Any] = {"bootstrap.servers": self.bootstrap, **rdkafka_properties(self.login)}
        if self.login.has_tls and self.login.certificate:
            # Of a text librdkafka takes the first certificate alone; those behind it lead to the authority.
            del properties["ssl.certificate.pem"]
            properties["ssl.certificate.location"] = str(private_file(self.login.certificate))
        if complaints is not None:
            # Not a bound method: it would refer to an object that holds clients. Such a cycle may be collected in a
            # thread of librdkafka's, and a client that is destroyed there ends the process.
            properties["error_cb"] = partial(_note, complaints)
        return properties

    def spark_options(self, folder: Path | None = None) -> dict[str, str]:
        """The options of Spark's Kafka source, without a secret: they stand in plans.

        Args:
            folder: A folder that all of Spark's processes see; None if they all run on this machine, as this user.
        """
        secrets = java_secrets(self.login)
        file = private_file(secrets_text(secrets), folder) if secrets else None
        if file is not None and set(str(file)) & set(":}"):  # which end a part of the reference
            raise RefusedError(
                f"{file}: the home's path has a colon or a brace, by which Kafka's client cannot find the secrets of "
                f"{self.section} there; take another folder"
            )
        properties = {"bootstrap.servers": self.bootstrap, **java_properties(self.login, file)}
        return {f"kafka.{name}": value for name, value in properties.items()}

    def fault(
        self, complaints: Sequence[Complaint], *, asks_port: bool = True
    ) -> RefusedError | UnavailableError | None:
        """Why the brokers and this client do not come together, once a request got no answer; None where no broker is
        there, or nothing says why. It is to be raised: a server of tokens that does not answer now may do so later.

        Args:
            complaints: What the client's connections complained of.
            asks_port: Whether the brokers' ports are asked what they speak, too.
        """
        listener = probe(self.bootstrap, self.login) if asks_port else None
        found = diagnosis(self.login, complaints, listener)
        if found is None:
            return None
        message = refusal(self.bootstrap, self.login, self.section, *found)
        return UnavailableError(message) if may_pass(*found) else RefusedError(message)

    def named(self, topic: str) -> str:
        """A topic of it, as Headwater calls it.

        Example:
            >>> KafkaCluster("b:9092", name="payments").named("orders"), KafkaCluster("b:9092").named("orders")
            ('payments:orders', 'orders')
        """
        return f"{self.name}:{topic}" if self.name else topic

    def bare(self, topic: str) -> str:
        """A topic as the cluster itself calls it."""
        return bare_topic(topic)


def _note(complaints: list[Complaint], error: Any) -> None:
    complaints.append(Complaint(error.name(), error.str()))
