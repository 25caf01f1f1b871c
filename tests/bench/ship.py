"""Figures of the shipper, as one JSON object: `python tests/bench/ship.py [--lines N]`.

One access log of N lines through `headwater ship --once`, and the same lines through a bare producer with the same
settings and no headers (a loop over the file and `produce`), each into a topic of its own of one broker process over
the loopback. Client and broker share the machine's cores. Nothing is asserted: compare runs on the same machine only.

- `lines_per_s`, `mb_per_s`: from the start of the process to its end, which waits for every acknowledgement.
- `cpu_us_per_line`: processor time of the process for each line, its start left out (that of a run over one line).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.processes import running

LINE = (
    '192.0.2.%d - - [10/Oct/2026:13:55:%02d +0000] "GET /shop/item/%d?ref=mail HTTP/1.1" 200 %d '
    '"https://www.example.com/shop" "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"\n'
)
PRODUCER = """
import sys
from confluent_kafka import Producer
bootstrap, topic, path = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 20,
                     "compression.type": "lz4", "partitioner": "murmur2_random"})
count = 0
def delivered(error, message):
    global count
    assert error is None, error
    count += 1
for line in open(path, "rb"):
    while True:
        try:
            producer.produce(topic, value=line[:-1], key=path, on_delivery=delivered)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)
producer.flush()
"""


def measured(command: list[str]) -> tuple[float, float]:
    """Runs a command; its wall-clock and processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def figures(command: list[str], one: list[str], lines: int, size: int) -> dict[str, Any]:
    """The figures of a command over the log, given the same over one line."""
    _, start_cpu_s = measured(one)
    wall_s, cpu_s = measured(command)
    return {
        "lines_per_s": round(lines / wall_s),
        "mb_per_s": round(size / wall_s / 1e6, 1),
        "cpu_us_per_line": round((cpu_s - start_cpu_s) / lines * 1e6, 2),
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=1_000_000)
    lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as folder:
        log, one = Path(folder, "access.log"), Path(folder, "one.log")
        with log.open("w") as file:
            file.writelines(LINE % (n % 250, n % 60, n % 99_991, n % 40_000) for n in range(lines))
        one.write_text(LINE % (1, 1, 1, 1))
        with running(Path(folder, "data"), "--coordinator", "memory") as (_, bootstrap, _):
            size = log.stat().st_size

            def ship(path: Path) -> list[str]:
                command = [sys.executable, "-m", "headwater.cli", "ship", str(path), "--topic", "shipped"]
                return [*command, "--once", "--bootstrap", bootstrap, "--home", f"{folder}/home"]

            def bare(path: Path) -> list[str]:
                return [sys.executable, "-c", PRODUCER, bootstrap, "bare", str(path)]

            found = {
                "lines": lines,
                "mb": round(size / 1e6, 1),
                "cores": os.cpu_count(),
                "ship": figures(ship(log), ship(one), lines, size),
                "bare_producer": figures(bare(log), bare(one), lines, size),
            }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
