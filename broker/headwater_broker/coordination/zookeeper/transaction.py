"""Operations that take effect together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_TRANSACTION_BYTES = 512 * 1024
"""Half of the server's `jute.maxbuffer`, which bounds a request and, with it, a whole transaction."""

_OPERATION_OVERHEAD_BYTES = 64  # header, lengths and access list of one operation


class Create(NamedTuple):
    """Creates a znode; fails with `NodeExistsError`, or `NoNodeError` if the parent is missing."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetData(NamedTuple):
    """Replaces a znode's data if it has this version (-1: any)."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Deletes a znode if it has this version (-1: any)."""

    path: str
    version: int = -1


Operation = Create | SetData | Delete


def chunked(
    operations: Sequence[Operation], max_bytes: int = MAX_TRANSACTION_BYTES
) -> Iterator[list[Operation]]:
    """Splits operations, in order, into transactions that are each below a size."""
    chunk: list[Operation] = []
    size = 0
    for operation in operations:
        data = b"" if isinstance(operation, Delete) else operation.data
        added = len(operation.path.encode()) + len(data) + _OPERATION_OVERHEAD_BYTES
        if chunk and size + added > max_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(operation)
        size += added
    if chunk:
        yield chunk
