"""The files that hold what a child process says on standard error."""

from pathlib import Path
from typing import IO

from headwater.errors import UserError, reason

# Enough for weeks of a quiet broker's lines; one older file is kept.
_KEEP_BYTES = 16 << 20


def open_log(path: Path) -> IO[bytes]:
    """Open a log for appending; one that has grown long is first put aside as `<name>.1`.

    Raises:
        UserError: Its folder may not be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _KEEP_BYTES:
            path.replace(path.with_name(path.name + ".1"))
        return path.open("ab")
    except OSError as error:
        raise cannot_write(path.parent, error) from error


def cannot_write(folder: Path, error: OSError) -> UserError:
    """The sentence for a folder that a stack may not write to."""
    return UserError(f"cannot write to {folder}: {reason(error)}")


def lines_since(path: Path, position: int) -> list[str]:
    """The lines written from a position on, without empty ones."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
