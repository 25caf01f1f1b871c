"""The `.txnindex` file: aborted transactions whose markers lie in a segment (see the package's documentation)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class DamagedTransactionIndexError(Exception):
    """The file is not whole entries of version 0."""


class AbortedTransaction(NamedTuple):
    """One entry.

    Attributes:
        producer_id: Who wrote it.
        first_offset: Of its first record in this partition.
        last_offset: Of its marker.
        last_stable_offset: The partition's once the marker was written.
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
