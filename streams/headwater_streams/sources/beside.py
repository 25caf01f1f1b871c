"""Files that a job's module names: they are relative to it, whatever folder a command was started in."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from headwater_streams.storage.files import file_bytes

_OURS = __name__.partition(".")[0]
_folder: ContextVar[Path | None] = ContextVar("headwater_module_folder", default=None)


@contextmanager
def naming_files_in(folder: Path) -> Iterator[None]:
    """Makes the files that the block names relative to a folder, where no module of Python names them."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def read_beside(path: str | Path) -> bytes:
    """A file's bytes; a relative path is looked up beside the module that names it, then in the current folder.

    Raises:
        OSError: It cannot be read; the message has its path, or the folders that lack it.
    """
    folders = dict.fromkeys([_folder.get() or _folder_of_caller(), Path.cwd()])
    places = [folder / path for folder in folders]  # an absolute path stays as it is
    for place in places:
        try:
            return file_bytes(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OSError(f"{place} cannot be read ({error.strerror})") from error
    if Path(path).is_absolute():
        raise OSError(f"there is no file {path}")
    raise OSError(f"there is no file {path} in {' or '.join(map(str, folders))}")


def _folder_of_caller() -> Path:
    """The folder of the innermost caller outside the library; the current folder for a prompt or a notebook."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OURS:
        frame = frame.f_back
    file = None if frame is None else frame.f_globals.get("__file__")
    return Path.cwd() if file is None else Path(file).resolve().parent
