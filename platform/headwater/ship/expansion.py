"""Expands glob patterns as `glob` does, and notes the folders that it cannot look into, which `glob` does not."""

import fnmatch
import glob
import os
import re
from collections.abc import Iterator

_ESCAPED = re.compile(r"\[([*?[])\]")
_MAGIC = re.compile(r"[*?[]")

Refused = dict[str, OSError]
"""What could not be looked at, and why."""


def paths_under(pattern: str, refused: Refused) -> Iterator[str]:
    """What an absolute glob pattern matches. `**` goes through links, too, but into each folder once: they may loop.

    Args:
        pattern: The pattern.
        refused: Takes the folders that could not be looked at, as what is in them may match.
    """
    if pattern.endswith("/**"):
        pattern += "/*"
    before, stars, after = pattern.partition("/**/")
    if not stars:
        yield from _matching(pattern, refused)
        return
    for top in _matching(f"{before}/", refused):
        for folder in _folders(top, refused):
            yield from paths_under(os.path.join(glob.escape(folder), after), refused)  # noqa: PTH118


def _matching(pattern: str, refused: Refused) -> Iterator[str]:
    """What a pattern without `**` matches. One that ends with a slash matches folders alone."""
    *folders, name = pattern.split("/")
    places = ["/"]
    for part in filter(None, folders):
        places = [each for place in places for each in _inside(place, part, refused)]
    for place in places:
        if not name:
            yield from [place] if os.path.isdir(place) else []  # noqa: PTH112
            continue
        paths = _inside(place, name, refused)
        yield from paths if _is_magic(name) else [each for each in paths if _exists(each, refused)]


def _inside(folder: str, part: str, refused: Refused) -> list[str]:
    """The paths in a folder that one part of a pattern matches; a plain name is joined without a look."""
    if not _is_magic(part):
        return [os.path.join(folder, _ESCAPED.sub(r"\1", part))]  # noqa: PTH118
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each in entries]
    except OSError as error:
        note(folder, error, refused)
        return []
    visible = names if part.startswith(".") else [each for each in names if not each.startswith(".")]
    return [os.path.join(folder, each) for each in fnmatch.filter(visible, part)]  # noqa: PTH118


def _is_magic(part: str) -> bool:
    return _MAGIC.search(_ESCAPED.sub("", part)) is not None


def _exists(path: str, refused: Refused) -> bool:
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        note(path, error, refused)
        return False
    return True


def note(path: str, error: OSError | ValueError, refused: Refused) -> None:
    """Notes a path that could not be looked at; one that does not exist is not noted."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        refused[path] = error


def _folders(top: str, refused: Refused) -> Iterator[str]:
    """A folder and those in it, but for hidden ones, as of glob's `**`."""
    seen = set()

    def failed(error: OSError) -> None:
        note(os.fsdecode(error.filename), error, refused)

    for folder, inner, _ in os.walk(top, onerror=failed, followlinks=True):
        real = os.path.realpath(folder)
        inner[:] = [each for each in inner if not each.startswith(".") and real not in seen]
        if real not in seen:
            seen.add(real)
            yield folder
