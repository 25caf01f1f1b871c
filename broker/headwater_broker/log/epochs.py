"""Which leader wrote which offsets: the `leader-epoch-checkpoint` file."""

from __future__ import annotations

from bisect import bisect_right

from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.results import EpochEnd

NO_EPOCH = -1


class LeaderEpochs:
    """Leader epochs with the first offset of each; both grow."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or ()]
        self._start_offsets = [start for _, start in entries or ()]

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Pairs of epoch and start offset."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch; -1 if none is known."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Starts an epoch; returns whether that was news.

        Epochs that began at or after the offset wrote nothing, and are forgotten.
        """
        if epoch <= self.latest:
            return False
        while self._start_offsets and self._start_offsets[-1] >= start_offset:
            self._start_offsets.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        return True

    def at(self, offset: int) -> int:
        """The epoch in which `offset` was written; -1 if not known."""
        slot = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_EPOCH

    def next_start(self, offset: int) -> int:
        """Where the epoch after the one at `offset` begins; past every offset if there is none."""
        slot = bisect_right(self._start_offsets, offset)
        return self._start_offsets[slot] if slot < len(self._start_offsets) else LONG_MAX

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch` ends: the start of the next one, or the log's end."""
        if epoch == NO_EPOCH or not self._epochs or epoch > self.latest:
            return EpochEnd(NO_EPOCH, -1)
        slot = bisect_right(self._epochs, epoch) - 1
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        if slot < 0:
            return EpochEnd(epoch, self._start_offsets[0])
        return EpochEnd(self._epochs[slot], self._start_offsets[slot + 1])

    def truncate_end(self, end_offset: int) -> bool:
        """Forgets epochs that begin at `end_offset` or later; returns whether there were any."""
        count = len(self._epochs)
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._start_offsets.pop()
            self._epochs.pop()
        return len(self._epochs) != count

    def truncate_start(self, start_offset: int) -> bool:
        """Forgets epochs that ended before `start_offset`; returns whether that changed anything."""
        slot = bisect_right(self._start_offsets, start_offset) - 1
        if slot < 0 or (slot == 0 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[:slot]
        del self._start_offsets[:slot]
        self._start_offsets[0] = start_offset
        return True
