"""The offsets that the batches before one read, as far as their records may still matter to it."""

from collections.abc import Sequence

from headwater_streams.base.ledger_entry import LedgerEntry, Ranges, SourceRange, merge_ranges

_US_PER_MS = 1000


def read_before(
    entries: Sequence[LedgerEntry], batch: SourceRange, needed_us: int | None, delay_us: int
) -> Ranges:
    """The offsets before those of a batch whose records may be as young as a time.

    Args:
        entries: The job's batches, oldest first; the batch itself and later ones may be among them.
        batch: What the batch read of the input.
        needed_us: The time, in microseconds since the epoch; None: all records are needed.
        delay_us: How far the input's watermark is behind the greatest event time seen.
    """
    sources = [
        (entry, source) for entry in entries for source in entry.sources if source.topic == batch.topic
    ]
    older = [
        place
        for place, (entry, source) in enumerate(sources)
        if needed_us is not None and _end_us(entry, source, delay_us) <= needed_us
    ]
    needed = sources[older[-1] + 1 :] if older else sources
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in merge_ranges([source.ranges for _, source in needed]).items():
        for partition, (start, end) in partitions.items():
            first, _ = batch.ranges.get(topic, {}).get(partition, (end, end))
            if start < min(end, first):
                ranges.setdefault(topic, {})[partition] = (start, min(end, first))
    return ranges


def _end_us(entry: LedgerEntry, source: SourceRange, delay_us: int) -> float:
    """A time after all events of an input that were seen up to a batch; infinite where the entry does not say it."""
    watermark_ms = entry.input_watermarks_ms.get(source.input)
    if watermark_ms is None:
        return float("inf")
    return (watermark_ms + delay_us // _US_PER_MS + 1) * _US_PER_MS
