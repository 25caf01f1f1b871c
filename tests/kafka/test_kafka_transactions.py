"""Apache Kafka's own tools read our transactions: markers, transaction indexes, producer snapshots, the state."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.log import LogConfig, LogManager
from headwater_broker.testing import broker

DumpLog = Callable[..., str]
COUNT = 40
PROPERTIES = {
    "log.segment.bytes": "3000",
    "log.index.interval.bytes": "200",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transactions of two producers, every third aborted, one left open; the broker has stopped."""
    data = tmp_path_factory.mktemp("data")
    with broker(data, properties=PROPERTIES) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "group"})
        producers = [
            Producer({"bootstrap.servers": running.bootstrap, "transactional.id": name})
            for name in ("one", "two")
        ]
        for producer in producers:
            producer.init_transactions(60)
        for number in range(COUNT):
            producer = producers[number % 2]
            producer.begin_transaction()
            producer.produce("t", b"%d" % number * 20, b"k", partition=0)
            producer.flush(60)
            if number % 3 == 2:
                producer.abort_transaction(60)
            elif number < COUNT - 1:
                offsets = [TopicPartition("t", 0, number)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
                producer.commit_transaction(60)
        offsets = [TopicPartition("t", 0, 5)]
        producers[1].send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producers[1].flush(60)
        consumer.close()
    return data


def test_dump_log_reads_markers_and_transaction_indexes(written: Path, dump_log: DumpLog) -> None:
    files = sorted((written / "t-0").glob("*.log"))
    assert len(files) > 2
    text = dump_log(*files, deep=True)
    assert len(re.findall(r"endTxnMarker: COMMIT coordinatorEpoch: 0", text)) == 26
    assert len(re.findall(r"endTxnMarker: ABORT coordinatorEpoch: 0", text)) == 13
    indexes = sorted((written / "t-0").glob("*.txnindex"))
    shown = re.findall(
        r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)",
        dump_log(*indexes),
    )
    manager = LogManager([str(written)], config_for=lambda _: LogConfig())
    manager.load()
    log = manager.get("t", 0)
    assert log is not None
    assert [tuple(map(int, each)) for each in shown] == [tuple(each) for each in log.aborted_transactions()]
    assert len(shown) == 13
    manager.close()


def test_dump_log_reads_open_transactions_in_the_producer_snapshot(written: Path, dump_log: DumpLog) -> None:
    newest = max((written / "t-0").glob("*.snapshot"))
    text = dump_log(newest)
    shown = re.findall(r"producerId: (\d+) .*coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+)", text)
    assert len(shown) == 2
    open_from = [first for _, _, first in shown if first.isdecimal() or "[" in first]
    assert len(open_from) == 1
    assert str(2 * (COUNT - 1)) in open_from[0]


def test_dump_log_decodes_the_state_of_transactions(written: Path, dump_log: DumpLog) -> None:
    files = sorted((written / "__transaction_state-0").glob("*.log"))
    text = dump_log(*files, deep=True, decoder="transaction-log-decoder")
    assert "transaction_metadata::transactionalId=one" in text
    for state in ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"):
        assert f"state={state}," in text
    assert "partitions=[t-0]" in text
