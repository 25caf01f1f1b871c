"""Figures of the broker, as one JSON object: `python tests/bench/broker.py [--messages N]`.

All over the loopback of one machine, client and broker sharing its cores. Nothing is asserted: compare runs on
the same machine only.

- `ready_s`: from the start of the process to its ready line.
- `resident_mb`: of the broker, idle after its start, and after all of this.
- `librdkafka`: through confluent-kafka, whose Python side is the slower part.
- `requests`: ready-made Produce frames with one message each through a plain socket, which cost the client
  nothing, so that the broker is the slower part; `cpu_us` is the broker's own time for each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import crc32c
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from support.processes import cpu_s, resident_mb, running, zookeeper

VALUE = b"x" * 200


def librdkafka(bootstrap: str, count: int) -> dict[str, Any]:
    """Messages per second in and out, and the time of single ones there and back."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000}
    )
    started = time.monotonic()
    for _ in range(count):
        producer.produce("bench", VALUE, partition=0)
    producer.flush(120)
    produced_s = time.monotonic() - started
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
        | {"queued.min.messages": 1_000_000, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition("bench", 0, OFFSET_BEGINNING)])
    started = time.monotonic()
    seen = 0
    while seen < count:
        seen += len(consumer.consume(10_000, timeout=1))
    consumed_s = time.monotonic() - started
    single = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    times_ms = []
    for index in range(1100):
        started = time.monotonic()
        single.produce("bench", VALUE, partition=0)
        consumer.poll(5)
        if index >= 100:
            times_ms.append((time.monotonic() - started) * 1000)
        single.poll(0)
    single.flush(10)
    consumer.close()
    times_ms.sort()
    return {
        "messages": count,
        "value_bytes": len(VALUE),
        "produced_per_s": round(count / produced_s),
        "consumed_per_s": round(count / consumed_s),
        "produce_to_consume_ms": {"p50": round(times_ms[500], 3), "p99": round(times_ms[990], 3)},
    }


def produce_frame(topic: bytes, acks: int, messages: int) -> bytes:
    """A Produce request, version 7, with one batch."""
    record = struct.pack(">bbb", 0, 0, 0) + b"\x01" + b"\x90\x03" + VALUE + b"\x00"
    records = b"".join(
        _varint(len(record)) + record[:2] + _varint(index) + record[3:] for index in range(messages)
    )
    tail = struct.pack(">hiqqqhii", 0, messages - 1, 1, 1, -1, -1, -1, messages) + records
    batch = struct.pack(">iBI", 0, 2, crc32c.crc32c(tail)) + tail
    batch = struct.pack(">qi", 0, len(batch)) + batch
    body = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhi", -1, acks, 1000)
    body += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


def _varint(value: int) -> bytes:
    value <<= 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def requests(bootstrap: str, pid: int, acks: int, messages: int, seconds: float) -> dict[str, Any]:
    """Sends one frame again and again for some seconds, and reads the answers, if any, beside."""
    frame = produce_frame(b"bench", acks, messages)
    block = frame * max(1, 200_000 // len(frame))
    in_block = len(block) // len(frame)
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(30)
        answers = [0]
        if acks:

            def read() -> None:
                while data := connection.recv(1 << 20):
                    answers[0] += len(data)

            reader = threading.Thread(target=read)
            reader.start()
        used = cpu_s(pid)
        started = time.monotonic()
        sent = 0
        while time.monotonic() - started < seconds:
            connection.sendall(block)
            sent += in_block
        # The last bytes are taken by the kernel before the broker has them: ask for an answer behind them.
        connection.sendall(produce_frame(b"bench", 1, 1))
        if acks:
            size = 4 + 4 + 4 + 2 + len(b"bench") + 4 + 30 + 4
            while answers[0] < (sent + 1) * size:
                time.sleep(0.001)
        else:
            connection.recv(1000)
        took_s = time.monotonic() - started
        used = cpu_s(pid) - used
        connection.shutdown(socket.SHUT_RDWR)
        if acks:
            reader.join()
    return {
        "acks": acks,
        "messages_in_request": messages,
        "requests_per_s": round(sent / took_s),
        "messages_per_s": round(sent * messages / took_s),
        "cpu_us": round(used / sent * 1e6, 2),
    }


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"cores": os.cpu_count(), "ready_s": {}, "resident_mb": {}}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with running(directory / "memory", "--coordinator", "memory") as (process, bootstrap, ready_s):
            figures["ready_s"]["memory"] = round(ready_s, 2)
            figures["resident_mb"]["idle"] = resident_mb(process.pid)
            figures["librdkafka"] = librdkafka(bootstrap, arguments.messages)
            figures["requests"] = [
                requests(bootstrap, process.pid, acks, messages, arguments.seconds)
                for acks in (0, 1)
                for messages in (1, 50)
            ]
            figures["resident_mb"]["after"] = resident_mb(process.pid)
        if shutil.which("java") and importlib.util.find_spec("pyspark"):
            with zookeeper(directory) as hosts:
                for name in ("zookeeper", "zookeeper_again"):
                    with running(directory / "data", "--zookeeper", hosts) as (process, _, ready_s):
                        figures["ready_s"][name] = round(ready_s, 2)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
