"""A broker for tests: in this process, on a free port, without ZooKeeper, in a fraction of a second.

Example:
    >>> with broker() as running:  # doctest: +SKIP
    ...     producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
"""

from headwater_broker.testing.broker import RunningBroker, broker

__all__ = ["RunningBroker", "broker"]
