"""Where the batches begin that a consumer is likely to ask for next."""

from __future__ import annotations

from headwater_broker.log.segment import Segment

_GENERATION_ENTRIES = 512


class Places:
    """Offsets at which a write or a read ended, with their positions: a tail fetch never scans.

    Keeps the last 512 to 1,024 of them: two generations, of which the older is dropped when the newer is
    full.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, tuple[Segment, int]] = {}
        self._older: dict[int, tuple[Segment, int]] = {}

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """The batch at `position` begins, or will begin, with `offset`."""
        if len(self._newer) >= _GENERATION_ENTRIES:
            self._older = self._newer
            self._newer = {}
        self._newer[offset] = (segment, position)

    def get(self, offset: int) -> tuple[Segment, int] | None:
        """Where `offset` begins a batch, if remembered."""
        return self._newer.get(offset) or self._older.get(offset)

    def clear(self) -> None:
        """Forgets everything, as segments changed."""
        self._newer = {}
        self._older = {}
