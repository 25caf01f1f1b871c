"""`by_key()`: removes records that a producer wrote twice under new offsets, by columns of the rows.

within 1 hour     10:00     10:30     11:00     11:30
key K              a                                      kept
key K                 b                                   duplicate of a
key K                            c                        kept: a is more than an hour before, and b was not kept
key K                  d, the last to come, at 10:20      duplicate of a
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import JobDefinitionError


@dataclass(frozen=True)
class ByKey:
    """Removes a row whose event time is at most `within` away from that of a kept row with the same key.

    Which row is kept depends on the order in which rows come: the first batch's, and in it the earliest. Keys are
    remembered for `within` plus the input's watermark. A row that comes later than the watermark is judged by the keys
    that are still remembered, and kept where its key is not.

    Attributes:
        columns: The key; NULL equals NULL.
        within: How far apart duplicates may be in event time, "1 hour".
    """

    columns: tuple[str, ...]
    within: str

    def __post_init__(self) -> None:
        parse_duration(self.within)
        if not self.columns:
            raise JobDefinitionError("by_key: name at least one column")

    @property
    def by_headers(self) -> bool:
        """Whether headers say which records are the same."""
        return False


def by_key(columns: Sequence[str], *, within: str) -> ByKey:
    """Declares deduplication by key; see `ByKey` for the arguments."""
    if isinstance(columns, str):
        raise JobDefinitionError(f"by_key: write the columns as a list, [{columns!r}]")
    return ByKey(tuple(columns), within)
