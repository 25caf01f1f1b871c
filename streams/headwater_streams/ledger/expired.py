"""What a table has let go of by its age, as its ledger says; see `runtime.expiry`."""

from collections import Counter
from collections.abc import Iterable

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import EXPIRY, LedgerEntry
from headwater_streams.ledger.places import Stretches

BatchId = tuple[int | None, int | None]
"""A batch's generation and number; of rows that no batch wrote, nothing."""


def is_expiry(entry: LedgerEntry | None) -> bool:
    """Whether a commit let go of rows by their age."""
    return entry is not None and entry.kind == EXPIRY


def expired_rows(entries: Iterable[LedgerEntry]) -> Counter[BatchId]:
    """How many rows of each batch have expired.

    Args:
        entries: Those of a table, of whatever kind.
    """
    counts: Counter[BatchId] = Counter()
    for entry in entries:
        for generation, batch, rows in Extra.EXPIRED.get(entry, ()):
            counts[generation, batch] += rows
    return counts


def expired_before_us(entries: Iterable[LedgerEntry]) -> int | None:
    """The time before which a table has no rows any more, in microseconds; None where none has expired."""
    return max(
        (Extra.EXPIRED_BEFORE_US.of(entry) for entry in entries if Extra.EXPIRED_BEFORE_US.is_in(entry)),
        default=None,
    )


def expired_among(entry: LedgerEntry) -> Stretches | None:
    """The offsets whose rows an expiry looked at; None for those of all batches before it."""
    listed = Extra.EXPIRED_AMONG.get(entry)
    if listed is None:
        return None
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for topic, partition, start, end in listed:
        found.setdefault((topic, partition), []).append((start, end))
    return found
