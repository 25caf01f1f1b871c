"""Files without fsync, for tests in which a process may end, but power stays."""

from __future__ import annotations

from headwater_broker.log.fs import Buffer, OsFileSystem


class Unsynced(OsFileSystem):
    """Waits for no disk: what was written before a process ended is in the page cache for the next one.

    Mixes into other file systems: give it as the last of the base classes.
    """

    def sync(self, fd: int) -> None:
        """Nothing to do, see the class."""

    def sync_dir(self, path: str) -> None:
        """Nothing to do, see the class."""

    def write_file(self, path: str, data: Buffer, *, durable: bool) -> None:
        """As ever, but not durable."""
        super().write_file(path, data, durable=False)
