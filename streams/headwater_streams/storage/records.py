"""Files that hold one record each (see `base.record`); an error about one names its file and a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from headwater_streams.base.record import NewerRecordError
from headwater_streams.storage.damage import DamagedFileError, NewerFileError
from headwater_streams.storage.stored_files import read_json, write_json


class Stored(Protocol):
    """A record that a file holds."""

    WHAT: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The record as it is stored."""
        ...

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The record as it was stored."""
        ...


R = TypeVar("R", bound=Stored)


def read_record(path: Path, record: type[R]) -> R:
    """The record that a file holds.

    Raises:
        DamagedFileError: It is not there, or not what was written.
        NewerFileError: A newer Headwater wrote it.
    """
    value = read_json(path)
    with naming_file(path, record.WHAT):
        return record.from_json(value)


def write_record(path: Path, record: Stored) -> None:
    """Writes a record; a reader, or a crash, sees the old file or the new one."""
    write_json(path, record.to_json())


@contextmanager
def naming_file(path: Path, what: str) -> Iterator[None]:
    """Names the file of a record in the errors of the block that reads it.

    Args:
        path: The file.
        what: What it should hold, with its article.

    Raises:
        DamagedFileError: It holds something else.
        NewerFileError: A newer Headwater wrote it.
    """
    try:
        yield
    except NewerRecordError as error:
        raise NewerFileError(path, str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DamagedFileError(path, f"is not {what} as it is written ({error})") from error
