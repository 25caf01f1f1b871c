"""kill -9 of the mirror, and of either broker, at random instants, while records come.

`HEADWATER_KILLS=200` runs the long form; `HEADWATER_SEED` repeats a run's instants, as far as a clock can.

What must hold at the end: the target has what the source has, partition for partition and in its order, each record
once; the runs that the mirror kept say of each where it stands at the source.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from amount import amount, drawn_seed
from broker_process import BrokerProcess
from headwater.mirror.end import End
from headwater.mirror.kept import load
from headwater_streams.sources.kafka_cluster import KafkaCluster
from mirrored_topics import QUIET, contents, make_topic, mirror_once, rows

KILLS = amount("HEADWATER_KILLS", small=5, full=20)
SEED = drawn_seed()
TOPIC = "clicks"


class Sender(threading.Thread):
    """Sends records until it is told to end."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self._bootstrap, self._rng = bootstrap, rng

    def run(self) -> None:
        plain = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 2, **QUIET}
        )
        number = 0
        while not self.stopping.is_set():
            for _ in range(self._rng.randrange(200)):
                plain.produce(TOPIC, b"%d" % number, b"%d" % (number % 31))
                number += 1
            plain.flush()
            time.sleep(self._rng.random() * 0.02)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [SEED])
def test_mirror_killed_at_any_instant_loses_nothing_and_doubles_nothing(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    west = BrokerProcess(tmp_path / "west", ["--coordinator", "memory"]).start()
    east = BrokerProcess(tmp_path / "east", ["--coordinator", "memory"]).start()
    command = [sys.executable, "-m", "headwater.cli", "mirror", "--from", west.bootstrap]
    command += ["--to", east.bootstrap, "--topics", ".*", "--home", str(tmp_path / "home")]
    log = (tmp_path / "mirror.stderr").open("ab")
    mirror = None
    sender = Sender(west.bootstrap, random.Random(seed + 1))
    try:
        make_topic(west.bootstrap, TOPIC, 3)
        sender.start()
        for number in range(KILLS):
            mirror = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
            time.sleep(0.7 + rng.random() * 1.5)
            if number % 5 == 4:
                victim = rng.choice([west, east])
                victim.kill()
                victim.start()
                time.sleep(rng.random())
            mirror.kill()
            mirror.wait()
        sender.stopping.set()
        sender.join(60)
        assert not sender.is_alive()
        mirror_once(west.bootstrap, east.bootstrap)

        there, here = rows(west.bootstrap, TOPIC), rows(east.bootstrap, TOPIC)
        assert len(there) > 1000, f"seed {seed}"
        assert contents(here) == contents(there), f"seed {seed}"
        kept = load(End(KafkaCluster(east.bootstrap))).runs
        for one, other in zip(here, there, strict=True):
            assert kept[TOPIC, one[0]].origin(one[1]) == other[1], f"seed {seed}"
    finally:
        if mirror is not None and mirror.poll() is None:
            mirror.kill()
            mirror.wait()
        sender.stopping.set()
        west.kill()
        east.kill()
        log.close()
