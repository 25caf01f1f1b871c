"""kill -9 of the mirror, and of either broker, at random instants, while records come, some of them in transactions.

`HEADWATER_KILLS=200` runs the long form; `HEADWATER_SEED` repeats a run's instants, as far as a clock can.

Now and then the mirror is not killed but held up. The next process takes over, and then the first one goes on as if
nothing had happened: as a process does whose machine was suspended.

What must hold at the end: the target has what the source has, partition for partition and in its order, each record
once; the runs that the mirror kept say of each where it stands at the source.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from amount import amount, drawn_seed
from broker_process import BrokerProcess
from headwater.mirror.end import End
from headwater.mirror.kept import load
from headwater_streams.sources.kafka_cluster import KafkaCluster
from kafka_clients import QUIET
from mirrored_topics import contents, make_topic, mirror_once, rows

KILLS = amount("HEADWATER_KILLS", small=5, full=20)
PLAIN, OF_TRANSACTIONS = "clicks", "orders"


class Sender(threading.Thread):
    """Sends records until it is told to end: into one topic as they come, into the other one in transactions."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self._address, self._rng = bootstrap, rng

    def run(self) -> None:
        plain = Producer(
            {"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 2, **QUIET}
        )
        transactional = None
        number = 0
        while not self.stopping.is_set():
            for _ in range(self._rng.randrange(200)):
                plain.produce(PLAIN, b"%d" % number, b"%d" % (number % 31))
                number += 1
            plain.flush()
            try:
                transactional = transactional or self._transactional()
                self._transaction(transactional, number)
            except KafkaException:
                transactional = None
            time.sleep(self._rng.random() * 0.02)

    def _transactional(self) -> Producer:
        producer = Producer({"bootstrap.servers": self._address, "transactional.id": "sender", **QUIET})
        producer.init_transactions(60)
        return producer

    def _transaction(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for each in range(self._rng.randrange(1, 20)):
            producer.produce(OF_TRANSACTIONS, b"%d.%d" % (number, each), b"%d" % each)
        if self._rng.random() < 0.2:
            producer.flush()
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


@pytest.mark.timeout(900)
def test_mirror_killed_at_any_instant_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    brokers = []
    for name in ("west", "east"):
        (tmp_path / name).mkdir()
        brokers.append(BrokerProcess(tmp_path / name, ["--coordinator", "memory"]).start())
    west, east = brokers
    command = [sys.executable, "-m", "headwater.cli", "mirror", "--from", west.bootstrap]
    command += ["--to", east.bootstrap, "--topics", ".*", "--home", str(tmp_path / "home")]
    log = (tmp_path / "mirror.stderr").open("ab")
    mirrors: list[subprocess.Popen[bytes]] = []
    sender = Sender(west.bootstrap, random.Random(seed + 1))
    try:
        for topic in (PLAIN, OF_TRANSACTIONS):
            make_topic(west.bootstrap, topic, 3)
        sender.start()
        for number in range(KILLS):
            mirrors.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ}))
            time.sleep(0.7 + rng.random() * 1.5)
            if number % 5 == 4:
                victim = rng.choice(brokers)
                victim.kill()
                victim.start()
                time.sleep(rng.random())
            if len(mirrors) > 1:
                mirrors[0].send_signal(signal.SIGCONT)
                time.sleep(rng.random())
                kill(mirrors.pop(0))
            if number % 3 == 1:
                mirrors[0].send_signal(signal.SIGSTOP)
            else:
                kill(mirrors.pop())
        sender.stopping.set()
        sender.join(60)
        assert not sender.is_alive()
        while mirrors:
            kill(mirrors.pop())
        mirror_once(west.bootstrap, east.bootstrap)

        kept = load(End(KafkaCluster(east.bootstrap))).runs
        for topic, least in ((PLAIN, 1000), (OF_TRANSACTIONS, 100)):
            there, here = rows(west.bootstrap, topic), rows(east.bootstrap, topic)
            assert len(there) > least, f"seed {seed}"
            assert contents(here) == contents(there), f"seed {seed}"
            for one, other in zip(here, there, strict=True):
                assert kept[topic, one[0]].origin(one[1]) == other[1], f"seed {seed}"
    finally:
        sender.stopping.set()
        for each in mirrors:
            kill(each)
        for broker in brokers:
            broker.kill()
        log.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process at once, also one that is held up."""
    process.kill()
    process.wait()
