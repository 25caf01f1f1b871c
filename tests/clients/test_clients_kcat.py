"""kcat, the console that people have at hand; skipped where it is not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from headwater_broker.testing import RunningBroker, broker

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)"
)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "2"}) as started:
        yield started


def kcat(running: RunningBroker, *arguments: str, stdin: str = "") -> str:
    """Runs kcat and returns what it printed."""
    done = subprocess.run(
        ["kcat", "-b", running.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_produces_lists_and_consumes(running: RunningBroker) -> None:
    kcat(running, "-P", "-t", "console", "-K", ":", "-p", "1", "-H", "from=kcat", stdin="a:one\nb:two\n")
    listed = json.loads(kcat(running, "-L", "-J", "-t", "console"))
    assert [broker["id"] for broker in listed["brokers"]] == [1]
    (topic,) = listed["topics"]
    assert [(each["partition"], each["leader"]) for each in topic["partitions"]] == [(0, 1), (1, 1)]
    read = kcat(running, "-C", "-t", "console", "-o", "beginning", "-e", "-q", "-f", "%p %o %k %s %h\n")
    assert read.splitlines() == ["1 0 a one from=kcat", "1 1 b two from=kcat"]


def test_kcat_consumes_as_a_group(running: RunningBroker) -> None:
    kcat(running, "-P", "-t", "grouped", "-p", "0", stdin="1\n2\n3\n")
    arguments = ("-G", "kcats", "-X", "auto.offset.reset=earliest", "-c", "3", "-q", "grouped")
    assert kcat(running, *arguments).split() == ["1", "2", "3"]


def test_kcat_asks_for_offsets_by_time(running: RunningBroker) -> None:
    kcat(running, "-P", "-t", "timely", "-p", "0", stdin="1\n2\n")
    assert "offset 2" in kcat(running, "-Q", "-t", "timely:0:-1")
    assert "offset 0" in kcat(running, "-Q", "-t", "timely:0:1000")
