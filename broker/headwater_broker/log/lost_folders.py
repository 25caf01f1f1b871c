"""Partitions whose directory is gone: the checkpoints of their log directory still say what they had."""

from __future__ import annotations

from typing import NamedTuple

from headwater_broker.log import checkpoints, paths
from headwater_broker.log.checkpoints import DamagedCheckpointError, TopicPartition
from headwater_broker.log.fs import FileSystem


class LostFolder(NamedTuple):
    """A partition that had records.

    Attributes:
        directory: The log directory that it was in.
        key: Its topic and number.
        start_offset: Where its log started.
        end_offset: Before this all was written, as far as that is known.
    """

    directory: str
    key: TopicPartition
    start_offset: int
    end_offset: int


def lost_folders(fs: FileSystem, directory: str) -> list[LostFolder]:
    """The partitions of a log directory that its checkpoints name and that are not in it.

    Args:
        fs: Files.
        directory: The log directory; it is only read.

    Raises:
        OSError: It cannot be read.
    """
    starts, points, watermarks = (
        _offsets(fs, f"{directory}/{name}")
        for name in (
            checkpoints.LOG_START_OFFSETS,
            checkpoints.RECOVERY_POINTS,
            checkpoints.HIGH_WATERMARKS,
        )
    )
    lost = []
    for key in sorted(points.keys() | watermarks.keys()):
        end_offset = max(points.get(key, 0), watermarks.get(key, 0))
        if end_offset and not fs.is_dir(paths.partition_directory(directory, *key)):
            lost.append(LostFolder(directory, key, starts.get(key, 0), end_offset))
    return lost


def _offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.decode_offsets(fs.read_file(path))
    except (FileNotFoundError, DamagedCheckpointError):
        return {}
