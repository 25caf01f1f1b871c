"""`headwater mirror` of an Apache Kafka that asks who it is, by SCRAM and by OAuth, in sessions of two seconds."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from headwater.mirror import Mirror, MirrorError, MirrorOptions
from headwater.mirror.topics import Choice
from headwater_broker.testing import broker
from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.sources.kafka_cluster import KafkaCluster
from mirrored_topics import rows
from secured import PASSWORD, certificates
from secured_kafka import secured_kafka, token_server

pytestmark = pytest.mark.timeout(300)


def mirror_for(source: KafkaCluster, target: str, seconds: float) -> list[str]:
    """Mirrors for a while; what was told."""
    told: list[str] = []
    stop = threading.Event()
    options = MirrorOptions(Choice((re.compile("orders"),)), groups=lambda _: True)
    mirror = Mirror(source, KafkaCluster(target), options, stop=stop, tell=told.append)
    failures: list[MirrorError] = []

    def run() -> None:
        try:
            mirror.run()
        except MirrorError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    stop.wait(seconds)
    stop.set()
    thread.join()
    return [*told, *map(str, failures)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_mirror_of_a_kafka_that_asks_who_it_is_goes_on_beyond_a_session(
    tmp_path: Path, mechanism: str
) -> None:
    folder, directory = tmp_path / "certificates", tmp_path / "kafka"
    folder.mkdir()
    directory.mkdir()
    certificates(folder)
    values = {"protocol": "SASL_SSL", "mechanism": mechanism, "ca": (folder / "ca.pem").read_text()}
    by_oauth = mechanism == "OAUTHBEARER"
    with (
        token_server(folder / "alice.key") as url,
        secured_kafka(folder, directory, f"{url}/keys" if by_oauth else "", session_ms=2000) as bootstrap,
        broker() as ours,
    ):
        if by_oauth:
            values |= {"token_url": f"{url}/token", "client_id": "alice", "client_secret": PASSWORD}
        else:
            values |= {"username": "alice", "password": PASSWORD}
        told = mirror_for(KafkaCluster(bootstrap, ClientLogin(**values)), ours.bootstrap, 9)  # type: ignore[arg-type]
        refused = KafkaCluster(
            bootstrap,
            ClientLogin(**values | {"token_url": "http://127.0.0.1:1/token", "password": "another"}),
        )  # type: ignore[arg-type]
        refusals = mirror_for(refused, ours.bootstrap, 5)

        assert rows(ours.bootstrap, "orders") == []
    assert told == []
    assert [each for each in refusals if "alice" in each or "server of tokens" in each], refusals
