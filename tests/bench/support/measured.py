"""One run of one contender: what it took, and what it kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.processes import cpu_s


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        seconds: From its start until its last commit.
        cpu_s: Processor time, of all processes that ran it.
        driver_cpu_s: Of that, what Python took.
        state_bytes: The most that its operators kept at once.
        result_rows: The rows that it wrote and that were compared.
        batches: How many batches Spark made.
        phases_ms: Spark's durations, summed over its batches, and of the library's jobs what `library.Steps` tells.
    """

    seconds: float
    cpu_s: float
    driver_cpu_s: float = 0.0
    state_bytes: int = 0
    result_rows: int = 0
    batches: int = 0
    phases_ms: Mapping[str, int] = field(default_factory=dict)


def measure(jvm: int, run: Callable[[], tuple[Iterable[Mapping[str, Any]], Mapping[str, int]]]) -> Run:
    """Runs something in Spark; it gives Spark's account of its batches, and what else it knows of its time."""
    jvm_s, driver_s, started = cpu_s(jvm), time.process_time(), time.monotonic()
    told, steps = run()
    seconds, driver_s = time.monotonic() - started, time.process_time() - driver_s
    found = [progress for progress in told if "addBatch" in progress["durationMs"]]
    phases: Counter[str] = Counter()
    for progress in found:
        phases.update({f"spark: {name}": took_ms for name, took_ms in progress["durationMs"].items()})
    kept = (sum(o["memoryUsedBytes"] for o in progress["stateOperators"]) for progress in found)
    cpu = cpu_s(jvm) - jvm_s + driver_s
    state = max(kept, default=0)
    return Run(seconds, cpu, driver_s, state, batches=len(found), phases_ms=dict(phases) | dict(steps))
