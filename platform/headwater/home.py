"""Which home a call from Python means."""

import os
from pathlib import Path

from headwater.errors import UsageError


def home_folder(home: Path | str | None) -> Path:
    """The home that is named; by default `$HEADWATER_HOME`, else `.headwater`."""
    return Path(home or os.environ.get("HEADWATER_HOME") or ".headwater")


def existing_home(home: Path | str | None) -> Path:
    """As `home_folder`, of a home whose tables are read.

    Raises:
        UsageError: There is no such folder.
    """
    folder = home_folder(home)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; it is to be the one that holds the tables")
    return folder
