"""An fsync that another thread may wait for."""

from __future__ import annotations


class Flush:
    """One group commit of a partition: everything that was written when it was started.

    Attributes:
        end_offset: What the recovery point will be.
    """

    end_offset: int

    def run(self) -> None:
        """Syncs the files; touches nothing else, so any thread may do it. Never raises: `complete` tells."""
        raise NotImplementedError

    def complete(self) -> int:
        """Moves the recovery point (and the high watermark where `expose=flushed`), in the log's own thread.

        Returns:
            The partition's recovery point.

        Raises:
            StorageError: The sync failed: the partition is offline, and nothing that waited may be
                acknowledged.
        """
        raise NotImplementedError
