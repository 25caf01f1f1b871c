"""What a request changes."""

from dataclasses import dataclass
from typing import Any

from headwater.registry.records import Record


@dataclass(frozen=True)
class Change:
    """What a request changes.

    Attributes:
        records: To be appended, in this order, or none of them.
        answer: What is answered once they are.
    """

    records: tuple[Record, ...]
    answer: Any
