"""How topics are called.

A topic of a cluster that is named in the settings is called `CLUSTER:TOPIC` wherever Headwater speaks of it, in ledger
entries and in `_topic` as well: two clusters may have topics of one name. Kafka allows no colon in a topic's name. An
audit may call a cluster by its brokers' address instead, which has colons.
"""

from collections.abc import Iterable

_COLON = ":"


def cluster_of(topic: str) -> str:
    """Which cluster a topic is of; empty for the one that is meant where none is named.

    Example:
        >>> cluster_of("payments:orders"), cluster_of("127.0.0.1:9093:orders"), cluster_of("orders")
        ('payments', '127.0.0.1:9093', '')
    """
    return topic.rpartition(_COLON)[0]


def bare_topic(topic: str) -> str:
    """A topic as its cluster calls it.

    Example:
        >>> bare_topic("payments:orders"), bare_topic("orders")
        ('orders', 'orders')
    """
    return topic.rpartition(_COLON)[2]


def of_several_clusters(topics: Iterable[str]) -> tuple[str, str] | None:
    """Two topics of one name, of two clusters; None where there are none.

    Example:
        >>> of_several_clusters(["eu:orders", "eu:returns", "orders"])
        ('eu:orders', 'orders')
    """
    seen: dict[str, str] = {}
    for topic in topics:
        before = seen.setdefault(bare_topic(topic), topic)
        if before != topic:
            return before, topic
    return None
