"""Open files that have lost their names: somebody removed the files, or put others in their place.

The broker can read such a file until its process ends, and then the records are lost. So the file is written again
where the next start looks for it.
"""

from __future__ import annotations

import os

from headwater_broker.log.damage import unused_broken_path
from headwater_broker.log.files import OpenFile, copy_bytes
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.segment import Segment


def is_astray(fs: FileSystem, file: OpenFile) -> bool:
    """Whether a file is no longer what its path leads to."""
    try:
        return fs.identity(file.path)[:2] != fs.identity(file.fd)[:2]
    except FileNotFoundError:
        return True
    except OSError:
        return False


def write_again(
    fs: FileSystem, directory: str, segment: Segment, file: OpenFile, end_position: int
) -> str | None:
    """Writes a segment's open file again, under the name that it had, and has the segment use the copy.

    This is rare, so that it may take long.

    Args:
        fs: Files.
        directory: The partition's.
        segment: The segment.
        file: Its open file.
        end_position: How much of it is written.

    Returns:
        The path under which the file that stood in its place is saved; None where there was none.

    Raises:
        OSError: The disk refused.
    """
    path, temporary = segment.log_path, f"{segment.log_path}.tmp"
    copy = OpenFile(fs, temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    copy_bytes(fs, file.fd, 0, end_position, copy.fd)
    fs.sync(copy.fd)
    saved_path = None
    if fs.exists(path):
        saved_path = unused_broken_path(fs, directory, segment.base_offset)
        fs.rename(path, saved_path)
    fs.rename(temporary, path)
    fs.sync_dir(directory)
    copy.path = path
    segment.take_file(copy)
    return saved_path
