"""A broker for tests: in this process, on a free port, without ZooKeeper or Java, in some milliseconds.

It is the whole broker, with the coordinator in memory, and every Kafka client speaks to it: topics, groups,
transactions and files on disk are as in a broker that stands by itself. As a fixture:

    from confluent_kafka import Producer

    def test_delivery(broker):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("clicks", b"x")
        assert producer.flush(5) == 0

    @pytest.mark.broker(properties={"num.partitions": "3"})
    def test_partitions(broker): ...

pytest finds the fixture by itself where headwater is installed (else say
`pytest_plugins = ["headwater_broker.pytest_plugin"]` in the topmost `conftest.py`). Each test gets a broker of
its own. For another scope, two brokers, or one that is stopped and comes back, there is the function of the
same name:

    from headwater_broker.testing import broker

    @pytest.fixture(scope="module")
    def shared_broker():
        with broker(properties={"auto.create.topics.enable": "false"}) as running:
            yield running

    def test_restart(tmp_path):
        with broker(tmp_path) as first:
            ...
        with broker(tmp_path, port=first.port) as again:
            ...

Groups rebalance without Kafka's delay of three seconds, and members may ask for sessions of 100 ms. A
`FixedClock` in place of the machine's makes what is counted by the clock the same each time.
"""

from headwater_broker.testing.broker import RunningBroker, broker
from headwater_broker.testing.clock import FixedClock
from headwater_broker.testing.wire import WireClient

__all__ = ["FixedClock", "RunningBroker", "WireClient", "broker"]
