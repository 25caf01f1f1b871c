"""Why a backfill is refused, as a value: planners give it in place of a plan, and who asked for the plan raises it."""

from dataclasses import dataclass
from typing import TypeVar

from headwater_streams.backfill.store import BackfillError
from headwater_streams.base.errors import StreamsError

T = TypeVar("T")


@dataclass(frozen=True)
class Refusal:
    """A backfill cannot be planned.

    Attributes:
        sentence: Why not, and what to do.
        error: What is raised with that, by what the caller can do about it.
    """

    sentence: str
    error: type[StreamsError] = BackfillError


def accepted(found: T | Refusal) -> T:
    """What was found, where nothing was refused.

    Raises:
        StreamsError: The refusal's error.
    """
    if isinstance(found, Refusal):
        raise found.error(found.sentence)
    return found
