"""Where the files that ship with Headwater are: conf/ and jobs/ of a checkout, or the wheel's copies."""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_dir(kind: Literal["conf", "jobs"]) -> Path:
    """The folder of shipped files.

    In a wheel it is `headwater/_shipped/<kind>`; in a checkout installed for development it is the folder at
    the root of the repository.

    Example:
        >>> (shipped_dir("conf") / "jars.lock").is_file()
        True
    """
    packaged = _PACKAGE / "_shipped" / kind
    if packaged.is_dir():
        return packaged
    return _PACKAGE.parents[1] / kind
