"""A client that behaves well beside the fuzzer: its requests are answered in time, its records stay what they are."""

from __future__ import annotations

import struct
import threading
import time
from uuid import uuid4

from kio.schema.errors import ErrorCode

from headwater_broker.testing import WireClient
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire import apis
from wire_fuzz.target import CONTROL, Target

_LIMIT_S = 10.0
_PAUSE_S = 0.02
_CHECKED_FROM = 21
_FETCH_BYTES = 1 << 20
_PINNED = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "cleanup.policy": "delete",
}
"""What the broker's defaults, which the fuzzer may change, would else be."""


class Control:
    """Produces and fetches in a thread of its own.

    Attributes:
        complaints: What it had to suffer.
        latencies_s: How long each request took.
    """

    def __init__(self, target: Target) -> None:
        self.complaints: list[str] = []
        self.latencies_s: list[float] = []
        self._target = target
        self._topic = f"{CONTROL}-{uuid4().hex}"  # which the fuzzer does not know
        self._stored: list[bytes] = []
        self._sent = b""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Makes its topic and begins."""
        topic = {"name": self._topic, "num_partitions": 1, "replication_factor": 1, "assignments": []}
        topic["configs"] = [{"name": name, "value": value} for name, value in _PINNED.items()]
        with self._target.client() as client:
            made = client.ask(apis.CREATE_TOPICS, 5, topics=[topic], timeout=20_000, validate_only=False)
        assert made.topics[0].error_code is ErrorCode.none, made
        self._thread.start()

    def stop(self) -> None:
        """Ends, and reads every record again."""
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Reads every record that was acknowledged."""
        with self._target.client() as client:
            position = 0
            while position < len(self._stored):
                position = self._fetched(client, position)

    @property
    def records(self) -> int:
        """How many were acknowledged."""
        return len(self._stored)

    @property
    def p99_s(self) -> float:
        """The latency that all but one in a hundred requests stay below."""
        return sorted(self.latencies_s)[len(self.latencies_s) * 99 // 100] if self.latencies_s else 0.0

    def _run(self) -> None:
        failing_since: float | None = None
        position = 0
        while not self._stopping.is_set():
            try:
                with self._target.client() as client:
                    self._settle(client)
                    while not self._stopping.wait(_PAUSE_S):
                        started = time.monotonic()
                        self._produce(client)
                        position = self._fetched(client, position)
                        took_s = time.monotonic() - started
                        self.latencies_s.append(took_s)
                        failing_since = None
                        if took_s > _LIMIT_S:
                            self.complaints.append(f"control: an answer took {took_s:.1f} s")
            except (OSError, AssertionError) as error:
                now = time.monotonic()
                failing_since = failing_since or now
                if now - failing_since > _LIMIT_S or isinstance(error, AssertionError):
                    self.complaints.append(f"control: {error!r}")
                    return
                time.sleep(0.1)

    def _produce(self, client: WireClient) -> None:
        batch = bytes(build_batch([b"%d" % len(self._stored)], timestamps_ms=[int(time.time() * 1000)]))
        self._sent = batch
        partition = {"index": 0, "records": batch}
        topic = {"name": self._topic, "partition_data": [partition]}
        answer = client.ask(
            apis.PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=[topic]
        )
        result = answer.responses[0].partition_responses[0]
        assert result.error_code is ErrorCode.none, result
        assert result.base_offset == len(self._stored), result
        self._stored.append(batch)

    def _settle(self, client: WireClient) -> None:
        """Finds out whether the record was stored whose answer was lost with the connection."""
        partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": self._topic, "partitions": [partition]}]
        answer = client.ask(apis.LIST_OFFSETS, 4, replica_id=-1, isolation_level=0, topics=topics)
        end = answer.topics[0].partitions[0].offset
        if end == len(self._stored) + 1:
            self._stored.append(self._sent)
        assert end == len(self._stored), (end, len(self._stored))

    def _fetched(self, client: WireClient, position: int) -> int:
        """Fetches and compares; returns the offset behind the last record."""
        partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": position}
        partition |= {"log_start_offset": -1, "partition_max_bytes": _FETCH_BYTES}
        answer = client.ask(
            apis.FETCH,
            11,
            replica_id=-1,
            max_wait=1000,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": self._topic, "partitions": [partition]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        result = answer.responses[0].partitions[0]
        assert result.error_code is ErrorCode.none, result
        data = bytes(result.records or b"")
        while len(data) >= 12:
            offset, size = struct.unpack_from(">qi", data)
            batch, data = data[: 12 + size], data[12 + size :]
            if len(batch) == 12 + size:
                assert offset == position, (offset, position)
                assert batch[_CHECKED_FROM:] == self._stored[offset][_CHECKED_FROM:], (offset, batch)
                position += 1
        return position
