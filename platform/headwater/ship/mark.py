"""How a file is recognised: digests of its first bytes and of those just before a place in it."""

import os
from dataclasses import dataclass
from hashlib import blake2b

HEAD_BYTES = 1024
"""How much of a file's beginning is compared; a line of a log and its time stamp are shorter."""

TAIL_BYTES = 256
"""How much before the place is compared."""

COPY_BYTES = 64
"""A file is taken for another's copy only if so many first bytes are known: a line's time stamp is among them."""


@dataclass(frozen=True)
class Mark:
    """What a file has at its beginning and before `position`. Digests, because logs hold secrets.

    Attributes:
        position: The place up to which the file was taken.
        head_bytes: How many of its first bytes `head` covers.
        head: Their digest.
        tail_bytes: How many bytes before `position` `tail` covers.
        tail: Their digest.
    """

    position: int
    head_bytes: int
    head: str
    tail_bytes: int
    tail: str

    @classmethod
    def of(cls, position: int, head: bytes, tail: bytes) -> "Mark":
        """The mark of bytes that were read."""
        return cls(position, len(head), digest(head), len(tail), digest(tail))

    @classmethod
    def of_end(cls, fd: int) -> "Mark":
        """The mark of an open file's end."""
        size = os.fstat(fd).st_size
        return cls.of(size, *around(fd, size))

    def match_in(self, fd: int) -> tuple[bytes, bytes] | None:
        """The first bytes and those before the place, if an open file has them; else None."""
        head = os.pread(fd, self.head_bytes, 0)
        tail = os.pread(fd, self.tail_bytes, self.position - self.tail_bytes)
        same = digest(head) == self.head and digest(tail) == self.tail
        return (head, tail) if same else None

    @property
    def tells_copies(self) -> bool:
        """Whether enough is known of the file to tell its copy from a file that begins alike."""
        return self.head_bytes >= COPY_BYTES


def around(fd: int, position: int) -> tuple[bytes, bytes]:
    """What a mark of a position in an open file is made of: its first bytes, and those before the position."""
    head = os.pread(fd, min(HEAD_BYTES, position), 0)
    return head, os.pread(fd, min(TAIL_BYTES, position), max(0, position - TAIL_BYTES))


def digest(data: bytes) -> str:
    """16 hexadecimal digits."""
    return blake2b(data, digest_size=8).hexdigest()
