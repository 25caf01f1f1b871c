"""Where a shipper keeps its files, and which folders it looks in: no name from outside leads beyond these."""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from headwater.ship.discovery import folders_named, matching_files

_PLAIN = "-._"


def own_folder(home: Path, name: str, topic: str) -> Path:
    """A shipper's folder; no two names have one, and none leads out of the home.

    Args:
        home: The home.
        name: The shipper's name: not empty and not only dots. What may not be in a file's name is percent-encoded.
        topic: A name that a topic may have.
    """
    safe = "".join(each if each.isalnum() or each in _PLAIN else quote(each, safe="") for each in name)
    return home / "ship" / safe / topic


def astray(places: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """The places that are outside of every folder in which the patterns name files, by themselves or through links.

    Saved progress says where a file was last seen; whoever may write to its topic could have any folder looked into.
    """
    patterns = tuple(patterns)
    named = set(folders_named(patterns))
    linked = {os.path.dirname(match.path) for match in matching_files(patterns).files.values()}  # noqa: PTH120
    folders = {folder for folder, _ in named} | linked
    trees = tuple(f"{folder.rstrip('/')}/" for folder, is_deep in named if is_deep)
    return {
        each
        for each in places
        if (folder := _folder_of(each)) not in folders and not f"{folder}/".startswith(trees)
    }


def _folder_of(place: str) -> str:
    try:
        return os.path.realpath(os.path.dirname(place))  # noqa: PTH120
    except ValueError:  # no path: it has a NUL
        return ""
