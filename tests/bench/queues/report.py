"""What the rounds say: medians, the table, the two figures and the section of the page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queues.drawing import Line, draw
from queues.system import MESSAGE_BYTES, Run
from support.pages import java_version, paragraph, rounds_of

PRODUCED, CONSUMED = "produced", "consumed"
DIRECTIONS = (PRODUCED, CONSUMED)
FIGURE_FILES = {PRODUCED: "broker-producer.svg", CONSUMED: "broker-consumer.svg"}
_FIGURE_TITLES = {
    PRODUCED: "One producer, as in Figure 4 of the Kafka paper",
    CONSUMED: "One consumer, as in Figure 5 of the Kafka paper",
}


@dataclass(frozen=True)
class Contender:
    """A system with a size of batches.

    Attributes:
        name: The system's.
        title: The system's, with its version.
        batch: Messages in a request.
        client: What loads it.
    """

    name: str
    title: str
    batch: int
    client: str


@dataclass(frozen=True)
class Measured:
    """One run, and what the broker took for it.

    Attributes:
        run: As its client saw it.
        broker_cpu_s: Processor time of the broker.
    """

    run: Run
    broker_cpu_s: float


Rounds = Mapping[str, Sequence[Measured]]
"""The rounds of a contender in both directions."""


def medians(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Of one contender, by direction: rates and processor time for each message."""
    return {direction: _medians(rounds[direction]) for direction in DIRECTIONS}


def _medians(rounds: Sequence[Measured]) -> dict[str, float]:
    rates = [seen.run.messages / seen.run.seconds for seen in rounds]
    return {
        "messages_per_s": statistics.median(rates),
        "least_messages_per_s": min(rates),
        "most_messages_per_s": max(rates),
        "mb_per_s": statistics.median(rates) * MESSAGE_BYTES / 1e6,
        "broker_cpu_us": statistics.median(seen.broker_cpu_s / seen.run.messages * 1e6 for seen in rounds),
        "client_cpu_us": statistics.median(
            seen.run.client_cpu_s / seen.run.messages * 1e6 for seen in rounds
        ),
    }


def slice_medians(rounds: Sequence[Measured]) -> list[tuple[float, float]]:
    """MB that were through at the end of each slice, and the median of its rates in messages/s."""
    each_round = [_slice_rates(seen.run) for seen in rounds]
    return [
        (statistics.median(mb for mb, _ in slices), statistics.median(rate for _, rate in slices))
        for slices in zip(*each_round, strict=False)
    ]


def _slice_rates(run: Run) -> list[tuple[float, float]]:
    before = (0, 0.0)
    rates = []
    for messages, seconds in run.slices:
        rate = (messages - before[0]) / max(seconds - before[1], 1e-6)
        rates.append((messages * MESSAGE_BYTES / 1e6, rate))
        before = (messages, seconds)
    return rates


def table(
    contenders: Sequence[Contender], found: Mapping[Contender, Mapping[str, Mapping[str, float]]]
) -> str:
    """Of the page: a row for each contender."""
    lines = [
        "| Broker | Messages a request | Produced | Consumed | Broker's CPU a message, in / out | Client's |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for contender in contenders:
        produced, consumed = (found[contender][direction] for direction in DIRECTIONS)
        cells = [contender.title, str(contender.batch), _rate(produced), _rate(consumed)]
        for owner in ("broker", "client"):
            cells.append(
                " / ".join(f"{each[f'{owner}_cpu_us']:.2f}" for each in (produced, consumed)) + " us"
            )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rate(figures: Mapping[str, float]) -> str:
    return f"{figures['messages_per_s'] / 1e3:,.1f} k messages/s ({figures['mb_per_s']:.0f} MB/s)"


def figure(
    direction: str, contenders: Sequence[Contender], rounds: Mapping[Contender, Rounds], ran: str
) -> str:
    """One of the two, as SVG."""
    lines = [
        Line(
            contender.name,
            f"{contender.title}, {contender.batch} a request",
            slice_medians(rounds[contender][direction]),
            dashed=contender.batch == 1,
        )
        for contender in contenders
    ]
    return draw(
        lines,
        title=_FIGURE_TITLES[direction],
        x_label=f"messages {direction} so far (MB, of {MESSAGE_BYTES} bytes each)",
        y_label="messages/s",
        caption=[ran],
    )


def ran_with(figures: Mapping[str, Any]) -> str:
    """What was run on what, in a sentence or two."""
    versions = figures["versions"]
    before, after = figures["load_average_before"][0], figures["load_average_after"][0]
    return (
        f"{figures['messages']:,} messages of {MESSAGE_BYTES} bytes from one producer, then to one consumer, over the "
        f"loopback of {figures['cores']} cores; medians of {rounds_of(figures)} in turns after one to warm up. "
        f"Load average before: {before:.1f}, after: {after:.1f}. Python {versions['python']}, "
        f"Java {java_version(versions['java'])}, {versions['system']}."
    )


def section(figures: Mapping[str, Any], drawn_table: str) -> str:
    """Of the page: the table and the figures, with what was run."""
    parts = [paragraph(ran_with(figures)), drawn_table]
    for left_out, reason in figures["left_out"].items():
        parts.append(paragraph(f"Without {left_out}: {' '.join(reason.split())[:300]}"))
    for direction in DIRECTIONS:
        parts.append(f"![{_FIGURE_TITLES[direction]}](figures/{FIGURE_FILES[direction]})")
    return "\n\n".join(parts)
