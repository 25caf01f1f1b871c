"""Pipelined Produce requests get the answers, and leave the logs, of requests that are sent one by one."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from amount import drawn_seed
from headwater_broker.testing import RunningBroker, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire.apis import APIS, PRODUCE
from headwater_broker.wire.codec import message_type
from headwater_broker.wire.primitives import write_uvarint
from headwater_broker.wire.reader import read_message

SEED = drawn_seed()
REQUESTS = int(os.environ.get("HEADWATER_REQUESTS", "600"))
TIMEOUT_S = 60
TOPICS = {
    "plain": {},
    "small": {"segment.bytes": "20000", "max.message.bytes": "3000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "short": {"min.insync.replicas": "2"},
    "synced": {"acks.fsync": "true"},
    "shut": {},
}


@dataclass(frozen=True)
class Sent:
    """A frame with its length prefix, and what its answer is to be read as."""

    frame: bytes
    topic: str
    version: int


class Source:
    """Produce requests, most of them like the one before."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._sequences = dict.fromkeys(range(3), 0)
        self._choose()

    def _choose(self) -> None:
        rng = self._rng
        self._version = rng.choice((3, 7, 8, 9, 11))
        self._topic = rng.choice([*TOPICS, "missing"])
        self._partition = rng.choice((0, 0, 1, 9))
        self._acks = rng.choice((1, 1, -1, 5))
        self._client_id = rng.choice((b"", b"a client"))

    def requests(self, count: int) -> list[Sent]:
        sent = []
        for number in range(count):
            if self._rng.random() < 0.1:
                self._choose()
            sent.append(Sent(self._frame(number), self._topic, self._version))
        return sent

    def _records(self) -> bytes:
        rng = self._rng
        values = [rng.randbytes(rng.choice((1, 100, 1000))) for _ in range(rng.randrange(1, 4))]
        keys = [b"k"] * len(values) if rng.random() < 0.8 else None
        kind = rng.choices(("plain", "codec", "producer", "bad"), (40, 2, 4, 2))[0]
        if kind == "producer":
            producer = rng.randrange(3)
            sequence = self._sequences[producer] + rng.choice((0, 0, 0, 1))
            self._sequences[producer] = sequence + len(values)
            return bytes(
                build_batch(values, keys=keys, producer_id=producer, producer_epoch=0, base_sequence=sequence)
            )
        batch = build_batch(values, keys=keys, attributes=rng.randrange(1, 5) if kind == "codec" else 0)
        if kind == "bad":
            batch[rng.randrange(12, len(batch))] ^= 0x40
        return bytes(batch)

    def _frame(self, correlation_id: int) -> bytes:
        topic, records = self._topic.encode(), self._records()
        head = struct.pack(">hhih", PRODUCE, self._version, correlation_id, len(self._client_id))
        head += self._client_id
        end = struct.pack(">hi", self._acks, 10_000)
        if self._version >= 9:
            body = b"\0\0" + end + b"\2" + write_uvarint(len(topic) + 1) + topic + b"\2"
            body += struct.pack(">i", self._partition) + write_uvarint(len(records) + 1) + records + bytes(3)
        else:
            body = b"\xff\xff" + end + struct.pack(">ih", 1, len(topic)) + topic
            body += struct.pack(">iii", 1, self._partition, len(records)) + records
        return struct.pack(">i", len(head) + len(body)) + head + body


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return bytes(data)


def answer(sock: socket.socket, sent: Sent) -> tuple[int, str]:
    """The correlation id and the fields of the next answer, without what the clock says."""
    frame = memoryview(exactly(sock, *struct.unpack(">i", exactly(sock, 4))))
    kind = message_type(APIS[PRODUCE].name, sent.version, "response")
    fields = repr(read_message(kind, frame, 5 if sent.version >= 9 else 4))
    (correlation_id,) = struct.unpack_from(">i", frame)
    return correlation_id, re.sub(r"log_append_time\w*=.*?\)", "", fields)


def one_by_one(to: RunningBroker, requests: list[Sent]) -> list[tuple[int, str]]:
    with socket.create_connection((to.host, to.port), timeout=TIMEOUT_S) as sock:
        answers = []
        for sent in requests:
            sock.sendall(sent.frame)
            answers.append(answer(sock, sent))
        return answers


def pipelined(to: RunningBroker, requests: list[Sent]) -> list[tuple[int, str]]:
    with socket.create_connection((to.host, to.port), timeout=TIMEOUT_S) as sock:
        data = b"".join(sent.frame for sent in requests)
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        answers = [answer(sock, sent) for sent in requests]
        sender.join()
        return answers


def prepare(running: RunningBroker, *, rules: bool) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    topics = [NewTopic(name, 2, 1, config=config) for name, config in TOPICS.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)
    if rules:
        literal = ResourcePatternType.LITERAL
        everything = (literal, "User:ANONYMOUS", "*", AclOperation.ALL)
        wanted = [
            AclBinding(ResourceType.TOPIC, "*", *everything, AclPermissionType.ALLOW),
            AclBinding(ResourceType.TOPIC, "shut", *everything, AclPermissionType.DENY),
        ]
        for done in admin.create_acls(wanted).values():
            done.result(60)


def logs(running: RunningBroker) -> dict[str, bytes]:
    """The bytes of all logs whose times are the clients'."""
    found = sorted(Path(running.data_dir).glob("*-[01]/*.log"))
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in found
        if not path.parent.name.startswith("stamped")
    }


@pytest.fixture(params=[False, True], ids=["open", "rules"])
def two_brokers(request: pytest.FixtureRequest) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(broker()) for _ in range(2))
        for each in (first, second):
            prepare(each, rules=request.param)
        yield first, second


def test_pipelined_requests_get_the_answers_of_those_sent_one_by_one(
    two_brokers: tuple[RunningBroker, RunningBroker], request: pytest.FixtureRequest
) -> None:
    print(f"HEADWATER_SEED={SEED}")
    requests = Source(f"{SEED}{request.node.name}").requests(REQUESTS)

    expected, seen = one_by_one(two_brokers[0], requests), pipelined(two_brokers[1], requests)

    assert [number for number, _ in expected] == list(range(REQUESTS))
    for number, (one, other) in enumerate(zip(expected, seen, strict=True)):
        assert one == other, f"request {number} for {requests[number].topic}"
    codes = set(re.findall(r"error_code=<ErrorCode\.(\w+)", " ".join(fields for _, fields in seen)))
    assert {"none", "unknown_topic_or_partition", "corrupt_message", "invalid_required_acks"} <= codes
    assert ("topic_authorization_failed" in codes) == request.node.name.endswith("[rules]")
    assert logs(two_brokers[1]) == logs(two_brokers[0])
