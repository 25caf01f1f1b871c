"""What is wrong with the disk under a stack's data, and with what is on it."""

import os
from pathlib import Path

from headwater.errors import reason
from headwater_broker.log import OsFileSystem, find_unreadable, lost_folders

_ROOM_BYTES = 32 << 20
_MISSING_OFFSETS = ".headwater-missing-offsets"
"""The file in a broker's log directory while offsets are lost; `headwater_broker.log` has its format."""
_OFFLINE = ".headwater-offline"
"""The file while partitions cannot be read."""


def disk_problem(folder: Path) -> str:
    """Why the disk of a folder cannot be written, or soon will not be; empty if it can."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        return f"the disk of {folder} does not answer: {reason(error)}"
    if disk.f_flag & os.ST_RDONLY:
        return f"the disk of {folder} is read-only: until it can be written, brokers take no records"
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < _ROOM_BYTES:
        return (
            f"the disk of {folder} is full ({free_bytes / 1e6:.0f} MB free): make room; brokers take no records "
            "without it, and take them again by themselves"
        )
    return ""


def lost_records(data: Path) -> list[str]:
    """The offsets that brokers have lost, as a segment's file is gone or short.

    Args:
        data: The stack's data folder.
    """
    sentences = []
    for path in sorted(data.glob(f"broker-*/log/{_MISSING_OFFSETS}")):
        for line in filter(None, _lines(path)):
            try:
                topic, partition, start, end, file = line.split(" ", 4)
                lost = f"{topic}-{partition} of {path.parts[-3]} has lost offsets {start} to {int(end) - 1}"
            except ValueError:
                sentences.append(
                    f"{path} does not say what is lost: the broker writes it anew when it starts"
                )
                break
            advice = "restore it from a copy while the stack is down, or go on without them"
            sentences.append(f"{lost}: {file} is gone or short: {advice}")
    return sentences


def offline_partitions(data: Path) -> list[str]:
    """The partitions that can neither be read nor written, and why, according to their brokers.

    Args:
        data: The stack's data folder.
    """
    sentences = []
    for path in sorted(data.glob(f"broker-*/log/{_OFFLINE}")):
        for line in filter(None, _lines(path)):
            topic, _, rest = line.partition(" ")
            partition, _, why = rest.partition(" ")
            sentences.append(f"{topic}-{partition} of {path.parts[-3]} cannot be read: {why}")
    for folder in sorted(data.glob("broker-*/log/*-stray")):
        sentences.append(
            f"{folder} has records of a topic that is not the one of that name: move them elsewhere, or remove them"
        )
    return sentences


def lost_partitions(data: Path) -> list[str]:
    """The partitions that have no folder any more, of a stack that is down: a running broker makes the folder again.

    Args:
        data: The stack's data folder.
    """
    sentences = []
    for folder in sorted(data.glob("broker-*/log")):
        try:
            lost = lost_folders(OsFileSystem(), str(folder))
        except OSError:
            continue
        for each in lost:
            name = f"{each.key[0]}-{each.key[1]}"
            sentences.append(
                f"{name} of {folder.parts[-2]} had records up to offset {each.end_offset - 1}, and {folder / name} is "
                "gone: put it back from a copy before headwater up, which goes on without them; of a topic that was "
                "deleted nothing is lost"
            )
    return sentences


def unreadable_records(data: Path) -> list[str]:
    """The batches that nobody can read: brokers before 0.2 took them from clients that made them wrong.

    Args:
        data: The stack's data folder.
    """
    sentences = []
    for folder in sorted(data.glob("broker-*/log")):
        for each in find_unreadable(OsFileSystem(), str(folder)):
            offsets = f"offsets {each.first_offset} to {each.last_offset}"
            sentences.append(
                f"{each.topic}-{each.partition} of {folder.parts[-2]} has a batch at {offsets} that no consumer can "
                f"read ({each.reason}): go on at offset {each.last_offset + 1}"
            )
    return sentences


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
