"""What a job's progress as a group's offsets leaves behind: no client that only a request under way holds.

librdkafka ends the process where a client is destroyed in a thread of its own, in which it answers requests.
"""

import gc
import socket
import weakref
from collections.abc import Iterator

import pytest

from headwater.running.cluster import Cluster
from headwater.running.group_offsets import GroupOffsets
from headwater_streams.sources.kafka_cluster import KafkaCluster


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing: requests stay under way."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_group_offsets_let_go_of_with_a_request_under_way_are_gone_at_once(silent: str) -> None:
    offsets = GroupOffsets(KafkaCluster(silent), "job", timeout_s=30)
    offsets.commit({("clicks", 0): 5})
    gone = weakref.ref(offsets)
    del offsets
    assert gone() is None


def test_cluster_of_a_verb_let_go_of_is_gone_with_its_clients(silent: str, tmp_path) -> None:
    cluster = Cluster(tmp_path, silent)
    cluster.admin()
    gone = weakref.ref(cluster)
    del cluster
    assert gone() is None
