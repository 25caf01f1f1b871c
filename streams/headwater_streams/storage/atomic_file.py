"""A file whose old or new contents a reader sees, never a part of them, even after a crash."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a draft beside `path`, which takes its place, flushed to the disk, once all of it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    with draft.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
