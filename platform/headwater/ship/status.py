"""How far the files of shippers are: their saved progress beside the files as they are now."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater.ship.brokers import Brokers
from headwater.ship.mark import Mark
from headwater.ship.progress import Entry, load_progress


@dataclass(frozen=True)
class FileStatus:
    """One file's line of `headwater ship --status`.

    Attributes:
        shipper: Whose it is.
        topic: Where its lines go.
        file: Where it is, or was last seen.
        file_id: Its id in the origin headers.
        position: The byte up to which it is acknowledged.
        lines: How many lines that is.
        size: Its size: now if it is on this machine, else when progress was last saved.
        lag_bytes: What is to be shipped.
        state: "followed", "done" (it left the patterns) or "elsewhere" (it is not on this machine, or gone, or was
            truncated or written anew: what is written to it then is a file of its own).
        saved_at: When progress was last saved, ISO 8601.
    """

    shipper: str
    topic: str
    file: str
    file_id: str
    position: int
    lines: int
    size: int
    lag_bytes: int
    state: str
    saved_at: str

    def as_json(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


def file_statuses(
    brokers: Brokers, shipper: str | None, topic: str | None, say: Callable[[str], None]
) -> list[FileStatus]:
    """All files of a shipper, a topic, or both; None for any. Reports records that are no progress of a file."""
    progress = load_progress(brokers, shipper, topic)
    for sentence in progress.passed_over:
        say(sentence)
    statuses = [_status(*each) for each in progress.entries]
    return sorted(statuses, key=lambda each: (each.shipper, each.topic, each.file, each.saved_at))


def _status(shipper: str, topic: str, entry: Entry) -> FileStatus:
    size, state = entry.size, "elsewhere"
    try:
        place = Path(entry.place)
        stat = place.stat()
        is_same = (stat.st_dev, stat.st_ino) == (entry.device, entry.inode)
        if is_same and stat.st_size >= entry.mark.position and _has(place, entry.mark):
            size, state = stat.st_size, "followed"
    except (OSError, ValueError):
        pass
    return FileStatus(
        shipper,
        topic,
        os.fsencode(entry.place).decode("utf-8", "backslashreplace"),
        entry.file_id,
        entry.mark.position,
        entry.ordinal,
        size,
        max(size - entry.mark.position, 0),
        "done" if entry.done else state,
        datetime.fromtimestamp(entry.saved_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z"),
    )


def _has(place: Path, mark: Mark) -> bool:
    """Whether a file has what was read of it; True for one that this user may not read."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return True
    try:
        return mark.match_in(fd) is not None
    finally:
        os.close(fd)
