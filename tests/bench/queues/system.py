"""What a contender is, and what one run of it saw."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

MESSAGE_BYTES = 200

SLICES = 25
"""The equal parts of a run whose rates the figures show."""

PREFETCH_MESSAGES = 1000
PREFETCH_BYTES = 200_000
"""What the paper has a consumer ask for ahead, of messages of 200 bytes."""


class NoContenderError(Exception):
    """A contender is not to be had: its program or its jars are missing, or it does not start."""


@dataclass(frozen=True)
class Run:
    """A run of a producer or of a consumer.

    Attributes:
        messages: That it sent or took.
        seconds: From its first to its last one, which the broker had by then.
        client_cpu_s: The generator's own processor time.
        slices: Messages that were through, and when, in seconds from the start.
    """

    messages: int
    seconds: float
    client_cpu_s: float
    slices: tuple[tuple[int, float], ...]


def run_of(seen: dict[str, Any]) -> Run:
    """What a generator printed; a rest that is no whole slice belongs to the one before it."""
    slices = [(messages, seconds) for messages, seconds in seen["slices"]]
    if len(slices) > 2 and slices[-1][0] - slices[-2][0] < (slices[-2][0] - slices[-3][0]) / 2:
        del slices[-2]
    return Run(seen["messages"], seen["seconds"], seen["cpu_s"], tuple(slices))


class System(Protocol):
    """A broker that is running, with the client that loads it.

    Attributes:
        name: In the JSON.
        title: In tables and figures, with its version.
        client: What loads it.
        batches: The messages in one request: each of these is a contender.
    """

    name: str
    title: str
    client: str
    batches: tuple[int, ...]

    def queue(self, name: str) -> AbstractContextManager[None]:
        """A new queue or topic, gone at the end."""

    def produce(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """Some messages into an empty queue, until all are sent or the seconds have passed."""

    def consume(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """All of them out again."""

    def cpu_s(self) -> float:
        """Processor time that the broker has used."""
