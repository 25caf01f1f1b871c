"""A file that a reader, or a crash, sees as it was or as it will be."""

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
