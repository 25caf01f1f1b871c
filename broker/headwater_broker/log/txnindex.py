"""The `.txnindex` file: aborted transactions whose markers lie in a segment (see the package's documentation)."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from headwater_broker.log.index import DamagedIndexError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class DamagedTransactionIndexError(DamagedIndexError):
    """The file is not whole entries of version 0."""


class AbortedTransaction(NamedTuple):
    """A transaction whose records a consumer of committed ones leaves out.

    Attributes:
        producer_id: Who wrote it.
        first_offset: Of its first record in this partition.
        last_offset: Of its marker.
        last_stable_offset: The partition's once the marker was written: no transaction that began before it
            has a later entry.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of an index file, or what is to be appended to one."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """Reads an index file.

    Raises:
        DamagedTransactionIndexError: It is not one; it can be made again from the batches.
    """
    if len(data) % _ENTRY.size:
        raise DamagedTransactionIndexError(f"{len(data)} bytes are not a multiple of {_ENTRY.size}")
    entries = []
    last_offset = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if (
            version != _VERSION
            or not last_offset < entry.last_offset
            or entry.first_offset > entry.last_offset
        ):
            raise DamagedTransactionIndexError(f"{entry} of version {version} follows offset {last_offset}")
        entries.append(entry)
        last_offset = entry.last_offset
    return entries


def find_aborted(
    entries: Sequence[AbortedTransaction], offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """The transactions of a segment that have records, or their marker, from `offset` to before `end_offset`.

    Returns:
        They, and whether none can be in a later segment.
    """
    matching = []
    for entry in entries[bisect_left(entries, offset, key=attrgetter("last_offset")) :]:
        if entry.first_offset < end_offset:
            matching.append(entry)
        if entry.last_stable_offset >= end_offset:
            return matching, True
    return matching, False
