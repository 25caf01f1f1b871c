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

from headwater.ship.mark import digest
from headwater.ship.progress import Entry

_SLACK_MS = 5000
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def open_compressed(entry: Entry, scratch: Path) -> tuple[int, str] | None:
    """Looks for a file in the compressed files of its folder, made by gzip, bzip2 or xz.

    These keep the time of the last change: one that was changed before the file's progress was saved has nothing new.

    Args:
        entry: The progress of a file that is no longer there.
        scratch: Where to put what is unpacked; it has no name there, and goes with the process.

    Returns:
        A descriptor of the unpacked file, and the path of the compressed one; None if none has what was read of it.
    """
    for path in sorted(Path(entry.place).parent.iterdir()):
        opener = _OPENERS.get(path.suffix)
        if opener is None:
            continue
        try:
            if path.stat().st_mtime_ns // 1_000_000 < entry.saved_ms - _SLACK_MS:
                continue
            with opener(path) as stream, tempfile.TemporaryFile(dir=scratch) as unpacked:
                if digest(stream.read(entry.mark.head_bytes)) != entry.mark.head:
                    continue
                stream.seek(0)
                shutil.copyfileobj(stream, unpacked)
                unpacked.flush()
                if entry.mark.found_in(unpacked.fileno()) is not None:
                    return os.dup(unpacked.fileno()), str(path)
        except (OSError, EOFError, zlib.error, lzma.LZMAError):  # not that, or still being written
            continue
    return None
