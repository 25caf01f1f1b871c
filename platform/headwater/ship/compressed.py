"""The rest of a file that was rotated and compressed before all of it was shipped."""

import bz2
import gzip
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.ship.discovery import COMPRESSED, beside
from headwater.ship.mark import Mark, digest

_SLACK_MS = 5000
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def open_compressed(
    place: str, mark: Mark, scratch: Path, *, read_ms: int | None = None
) -> tuple[int, str] | None:
    """Looks for a file in the compressed files of its folder, made by gzip, bzip2 or xz.

    Args:
        place: Where the file was.
        mark: What was read of it.
        scratch: Where to put what is unpacked; it has no name there, and goes with the process.
        read_ms: When it had been read to its end, in milliseconds since the epoch; None if it had not. What
            compresses a file keeps the time of its last change: one that was changed before has nothing new.

    Returns:
        A descriptor of the unpacked file, and the path of the compressed one; None if none has what was read of it.
    """
    for path in beside(place):
        opener = _OPENERS.get(path.suffix)
        if opener is None:
            continue
        try:
            if read_ms is not None and path.stat().st_mtime_ns // 1_000_000 < read_ms - _SLACK_MS:
                continue
            with opener(path) as stream, tempfile.TemporaryFile(dir=scratch) as unpacked:
                if digest(stream.read(mark.head_bytes)) != mark.head:
                    continue
                stream.seek(0)
                shutil.copyfileobj(stream, unpacked)
                unpacked.flush()
                if mark.found_in(unpacked.fileno()) is not None:
                    return os.dup(unpacked.fileno()), str(path)
        except (OSError, EOFError, zlib.error, lzma.LZMAError):  # not that, or still being written
            continue
    return None


def not_unpacked(place: str) -> str | None:
    """The last file of a like name beside a file's place that is compressed as `open_compressed` does not unpack."""
    alike = [path for path in beside(place) if path.name.startswith(Path(place).stem)]
    others = [path for path in alike if path.suffix in COMPRESSED and path.suffix not in _OPENERS]
    return str(max(others, key=_changed_ns)) if others else None


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_ctime_ns
    except OSError:
        return 0
