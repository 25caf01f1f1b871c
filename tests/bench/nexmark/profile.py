"""Where a run's processor time goes: Java Flight Recorder's samples of a JVM, and the kernel's account of its threads.

A sample counts for what the innermost frame of its stack that is known belongs to; library code in between is its
caller's. What collects garbage and compiles is no Java code: the kernel tells how long these threads ran.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from headwater.stack.java import find_java
from support.processes import cpu_s

REST = "rows between these"
PARTS: dict[str, tuple[str, ...]] = {
    "JSON": (
        "com.fasterxml.jackson.",
        "org.apache.spark.sql.catalyst.json.",
        "org.apache.spark.sql.catalyst.expressions.json.",
        "org.apache.flink.formats.json.",
        "org.apache.flink.shaded.jackson",
        "sun.nio.cs.StreamDecoder",
    ),
    "Kafka's client": (
        "org.apache.kafka.",
        "org.apache.spark.sql.kafka010.",
        "org.apache.flink.connector.kafka.",
        "org.apache.flink.connector.base.",
        "org.apache.flink.streaming.connectors.kafka.",
    ),
    "statistics": ("org.apache.spark.sql.delta.stats.",),
    "Parquet": (
        "org.apache.parquet.",
        "org.apache.spark.sql.execution.datasources.parquet.",
        "org.apache.flink.formats.parquet.",
    ),
    "state": (
        "org.apache.spark.sql.execution.streaming.state.",
        "org.apache.spark.sql.execution.streaming.operators.stateful.",
        "org.apache.flink.runtime.state.",
        "org.apache.flink.table.runtime.operators.",
    ),
    "exchange": (
        "org.apache.spark.shuffle.",
        "org.apache.spark.sql.execution.exchange.",
        "org.apache.spark.sql.execution.UnsafeRowSerializer",
        "org.apache.spark.storage.",
        "org.apache.flink.runtime.io.network.",
    ),
    "sort": (
        "org.apache.spark.util.collection.unsafe.sort.",
        "org.apache.spark.sql.execution.UnsafeExternalRowSorter",
    ),
    "kept batch": ("org.apache.spark.sql.execution.columnar.",),
    "plan": (
        "org.apache.spark.sql.catalyst.trees.",
        "org.apache.spark.sql.catalyst.analysis.",
        "org.apache.spark.sql.catalyst.optimizer.",
        "org.apache.spark.sql.catalyst.rules.",
        "org.apache.spark.sql.catalyst.plans.",
        "org.apache.spark.sql.classic.",
        "org.codehaus.janino.",
        "py4j.",
    ),
    REST: ("org.apache.spark.sql.catalyst.expressions.", "org.apache.flink.table.data."),
    "commit": ("org.apache.spark.sql.delta.", "io.delta."),
}
"""What frames belong to, by how their names begin; the code that Spark generates is among its expressions."""
_THREADS = {"garbage collection": ("GC Thread", "ParGC", "G1 "), "compiler": ("C1 Compiler", "C2 Compiler")}
_DEPTH = 64

Shares = dict[str, float]
"""Parts of a run's processor time, of 1."""

OPTION = "-XX:StartFlightRecording=name=headwater,settings=profile,maxage=20m -XX:-UseDynamicNumberOfCompilerThreads"
"""Of the JVMs that are looked at: a recording that begins later has all that is compiled thrown away."""


@contextlib.contextmanager
def recorded(jvm: int) -> Iterator[Shares]:
    """Looks at a JVM that was started with `OPTION` while the block runs; gives the parts once it has ended."""
    found: Shares = {}
    began, before, started_s = datetime.now(UTC), _threads_s(jvm), cpu_s(jvm)
    yield found
    after, total_s = _threads_s(jvm), cpu_s(jvm) - started_s
    spent_s = {part: after[part] - before[part] for part in after}
    home = find_java(os.environ).home
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording.jfr"
        what = ["JFR.dump", "name=headwater", f"begin={began:%Y-%m-%dT%H:%M:%S.%fZ}", f"filename={file}"]
        subprocess.run([home / "bin" / "jcmd", str(jvm), *what], check=True, capture_output=True)
        found.update(_shares(spent_s, total_s, _samples(home, file)))


def table(profiles: dict[str, dict[str, Shares]]) -> str:
    """The shares of each query's contenders, for people."""
    parts = [*PARTS, *_THREADS]
    lines = [f"| query | contender | {' | '.join(parts)} |", f"|---|---|{'--:|' * len(parts)}"]
    for query, contenders in profiles.items():
        for name, shares in contenders.items():
            cells = [f"{shares.get(part, 0) * 100:.0f}" for part in parts]
            lines.append(f"| {query} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shares(spent_s: dict[str, float], total_s: float, samples: Counter[str]) -> Shares:
    found = {part: took_s / total_s for part, took_s in spent_s.items()}
    rest, sampled = 1 - sum(found.values()), sum(samples.values())
    return found | {part: rest * count / sampled for part, count in samples.items()}


def _threads_s(pid: int) -> dict[str, float]:
    """Processor time of the threads that run no Java code, by what they are for; they live as long as their process."""
    found = dict.fromkeys(_THREADS, 0.0)
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            head, _, fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")
            part = next(
                (part for part, names in _THREADS.items() if head.partition("(")[2].startswith(names)), None
            )
            if part is not None:
                found[part] += sum(int(ticks) for ticks in fields.split()[11:13]) / os.sysconf("SC_CLK_TCK")
    return found


def _samples(home: Path, file: Path) -> Counter[str]:
    command = [
        home / "bin" / "jfr",
        "print",
        "--events",
        "jdk.ExecutionSample",
        "--stack-depth",
        str(_DEPTH),
        file,
    ]
    found: Counter[str] = Counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stack: list[str] = []
        for line in process.stdout:
            if line.startswith("jdk.ExecutionSample"):
                stack = []
            elif line.startswith("}"):
                found[_part(stack)] += 1
            else:
                stack.append(line.strip())
    return found


def _part(stack: list[str]) -> str:
    for frame in stack:
        for part, names in PARTS.items():
            if frame.startswith(names):
                return part
    return REST
