"""The watermark of an input whose commits a job reads whole and in order: all rows at or before it have come."""

from dataclasses import dataclass

from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.runtime.inputs import BatchInput


@dataclass(frozen=True)
class Watermark:
    """How far an input has come; it stands in the ledger entry of the job's last commit.

    Attributes:
        seen_us: The greatest event time of the commits that were read, microseconds; None before the first.
        at_us: The watermark, a delay behind that; it never goes back.
    """

    seen_us: int | None = None
    at_us: int | None = None

    @classmethod
    def of(cls, entry: LedgerEntry) -> "Watermark":
        """The watermark that a commit was made at."""
        return cls(Extra.SEEN_US.get(entry), Extra.WATERMARK_US.get(entry))

    def ledger_extra(self) -> ExtraValues:
        """What the entry's `extra` says of it."""
        return {Extra.SEEN_US: self.seen_us, Extra.WATERMARK_US: self.at_us}

    def after(self, batch_input: BatchInput | None, delay_us: int) -> "Watermark":
        """The watermark once a batch of the input was read; None where the batch has nothing of it."""
        newest = batch_input.max_event_time_us if batch_input is not None else None
        seen_us = max((time_us for time_us in (self.seen_us, newest) if time_us is not None), default=None)
        if seen_us is None:
            return Watermark()
        # It never goes back, even if the delay was made longer.
        return Watermark(
            seen_us, max(seen_us - delay_us, seen_us - delay_us if self.at_us is None else self.at_us)
        )
