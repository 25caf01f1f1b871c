"""What a recomputation is asked for, and what came of it."""

from dataclasses import dataclass
from typing import Literal

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Compared
from headwater_streams.backfill.verdict import Finding
from headwater_streams.base.plural import quantity

NAME = "recomputed"
"""The finding's name."""

_OF_THE_DAY = "a job whose rows depend on the day they are made is verified with --recompute none"

Recompute = Literal["all", "sample", "none"]
"""How much is recomputed."""


class NotRecomputableError(Exception):
    """Nothing can be recomputed; the message says why. It never leaves this package."""


def require_topics_whole(history: TableHistory) -> None:
    """Sees to it that the topics have what a table was made of.

    Raises:
        NotRecomputableError: One was made again.
    """
    for topic in history.made_again:
        raise NotRecomputableError(
            f"the topic {topic} was deleted and made again, and what {history.name} has of before is in no topic"
        )


@dataclass(frozen=True)
class Recomputed:
    """What a recomputation found.

    Attributes:
        findings: The finding, or none where nothing could be recomputed.
        notes: What a person should know, each a sentence.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def not_asked() -> Recomputed:
    """Nothing was to be recomputed."""
    return nothing("it was not asked for (--recompute none)")


def nothing(why: object) -> Recomputed:
    """Nothing was recomputed."""
    return Recomputed(notes=(f"nothing was recomputed from the raw topic: {why}",))


def judged(compared: Compared, what: str, read: Offsets, everything: Offsets, gone: int) -> Recomputed:
    """The finding on what was compared.

    Args:
        compared: The comparison.
        what: What was recomputed, "3 of 4 windows".
        read: The offsets that were read for it.
        everything: The offsets that the run's rows come from.
        gone: How many of them the topic does not have any more.
    """
    notes = []
    if gone:
        notes.append(
            f"{gone:,} of {everything.count:,} offsets are gone from {everything.topics}; what came of them was not "
            "recomputed"
        )
    if compared.unsteady:
        names = ", ".join(compared.unsteady)
        notes.append(f"recomputed, but not compared, since it comes out otherwise each time: {names}")
    offsets = f"{read.count:,} of {quantity(everything.count, 'offset')}"
    detail = f"{what} from {offsets} of {everything.topics}"
    told = (
        f"{detail}, as they are written" if compared.same else f"{detail}: {compared.told()}; {_OF_THE_DAY}"
    )
    return Recomputed((Finding(name=NAME, ok=compared.same, detail=told),), tuple(notes))
