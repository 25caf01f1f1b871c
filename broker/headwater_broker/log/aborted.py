"""The `.txnindex` file: which transactions of a segment were aborted (see the package's documentation)."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from headwater_broker.log.index import DamagedIndexError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0

ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction whose records a consumer of committed ones leaves out.

    Attributes:
        producer_id: Who wrote it.
        first_offset: Of its first record.
        last_offset: Of its marker.
        last_stable_offset: Of the partition right after the marker: no transaction that begins before it is
            in a later entry.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: Sequence[AbortedTransaction]) -> bytes:
    """The bytes of the file."""
    return b"".join(
        _ENTRY.pack(_VERSION, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in entries
    )


def decode_aborted(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Reads the file of the segment at `base_offset`.

    Raises:
        DamagedIndexError: Another version, half an entry, or entries that do not grow.
    """
    if len(data) % _ENTRY.size:
        raise DamagedIndexError(f"{len(data)} bytes are not a multiple of {_ENTRY.size}")
    entries: list[AbortedTransaction] = []
    last_offset = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != _VERSION:
            raise DamagedIndexError(f"version {version}, known is {_VERSION}")
        if entry.last_offset <= last_offset or entry.first_offset >= entry.last_offset:
            raise DamagedIndexError(f"the entry for offset {entry.last_offset} is out of order")
        last_offset = entry.last_offset
        entries.append(entry)
    return entries


def find_aborted(
    entries: Sequence[AbortedTransaction], offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """The transactions of a segment that have records, or their marker, from `offset` to before `end_offset`.

    Returns:
        They, and whether none can be in a later segment.
    """
    found = []
    for entry in entries[bisect_left(entries, offset, key=attrgetter("last_offset")) :]:
        if entry.first_offset < end_offset:
            found.append(entry)
        if entry.last_stable_offset >= end_offset:
            return found, True
    return found, False
