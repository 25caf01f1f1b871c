"""What this process holds open, also while no collector runs, as in a broker that is idle."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_files(path: str) -> list[str]:
    """The open files whose paths have that in them; of those that were deleted they end in `(deleted)`."""
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [link for link in links if path in link]


@contextmanager
def without_collector() -> Iterator[None]:
    """Frees only what nothing refers to. Nothing is logged: pytest keeps the records, which have the errors."""
    gc.collect()
    gc.disable()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
