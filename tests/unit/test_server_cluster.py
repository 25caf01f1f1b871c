"""What the view of the cluster says of replicas that are in sync."""

from uuid import uuid4

import pytest

from headwater_broker.coordination import PartitionState, TopicState
from headwater_broker.server.cluster import ClusterView


@pytest.mark.parametrize(
    ("replicas", "isr", "wanted", "lacks"),
    [
        ((1,), (1,), 2, False),  # no more can be in sync than there are
        ((1, 2), (1, 2), 3, False),
        ((1, 2), (1,), 3, True),
        ((1, 2), (1,), 2, True),
        ((1, 2, 3), (1, 3), 2, False),
        ((1,), (), 1, True),
    ],
)
def test_lacks_replicas_asks_for_no_more_than_the_partition_has(
    replicas: tuple[int, ...], isr: tuple[int, ...], wanted: int, *, lacks: bool
) -> None:
    view = ClusterView(1, "cluster")
    view.topics = {"t": TopicState("t", uuid4(), {0: PartitionState(replicas, isr=isr)})}
    assert view.lacks_replicas("t", 0, wanted) is lacks
    assert view.lacks_replicas("t", 1, wanted)
    assert view.lacks_replicas("nowhere", 0, wanted)
