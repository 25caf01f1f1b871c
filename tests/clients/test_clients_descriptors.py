"""A broker process without free descriptors: it says so once, and goes on when some are free."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kio.schema.errors import ErrorCode

from headwater_broker.testing import WireClient
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire.apis import API_VERSIONS, CREATE_TOPICS, METADATA, PRODUCE
from readable import is_readable

LIMIT = 128
TIMEOUT_S = 30.0


@contextmanager
def limited(folder: Path) -> Iterator[tuple[str, Path]]:
    """Address and log of a broker that may have `LIMIT` descriptors."""
    log = folder / "broker.log"
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}));"
        "from headwater_broker.server.process import main; raise SystemExit(main())"
    )
    command = [sys.executable, "-c", program]
    options = ["--listen", "127.0.0.1:0", "--coordinator", "memory", "--data", str(folder / "data")]
    with log.open("w") as errors:
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1], log
        finally:
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def ask(sock: socket.socket) -> None:
    """Asks for ApiVersions 0."""
    sock.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1))


def produce(client: WireClient, value: bytes) -> None:
    partition = {"index": 0, "records": bytes(build_batch([value]))}
    topics = [{"name": "t", "partition_data": [partition]}]
    answer = client.ask(PRODUCE, 8, transactional_id=None, acks=1, timeout=1000, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


def test_descriptors_run_out_and_come_back(tmp_path: Path) -> None:
    """Twice: waiting connections are accepted as soon as others are closed, and segments are begun meanwhile."""
    with limited(tmp_path) as (address, log), WireClient(address) as first:
        topic = {
            "name": "t",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "segment.bytes", "value": "1000"}],
        }
        made = first.ask(CREATE_TOPICS, 2, topics=[topic], timeout=30_000, validate_only=False)
        assert made.topics[0].error_code is ErrorCode.none
        host, port = address.split(":")
        for _ in range(2):
            with ExitStack() as stack:
                socks = [
                    stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
                    for _ in range(LIMIT + 20)
                ]
                for sock in socks:
                    ask(sock)
                assert socks[0].recv(1)
                for _ in range(4):
                    produce(first, b"x" * 800)
                assert not is_readable(socks[-1])
                for sock in socks[: LIMIT // 2]:
                    sock.close()
                assert socks[-1].recv(1)
            with WireClient(address) as later:
                assert later.ask(METADATA, 1, topics=None).topics[0].name == "t"
    lines = log.read_text()
    assert len(re.findall("cannot accept connections", lines)) == 1, lines
    assert not re.search("Traceback|offline", lines), lines
