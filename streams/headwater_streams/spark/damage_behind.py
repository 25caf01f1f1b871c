"""Finds the damaged file behind an error of Spark's, which names none, or the file without its job and the remedy."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from headwater_streams.base.errors import StreamsError
from headwater_streams.spark.checkpoint_damage import checkpoint_damage
from headwater_streams.spark.spark_errors import full_text
from headwater_streams.storage.damage import DamagedFileError, place_of
from headwater_streams.storage.delta_files import table_damage
from headwater_streams.storage.files import exists
from headwater_streams.storage.home import Home

_END = r"[^\s'\",;:)\]]+"


def damage_behind(
    error: BaseException, home: Home, *, checkpoint: Path | None = None, tables: Iterable[str] = ()
) -> DamagedFileError | None:
    """The damaged file that an error comes of; None where the error is the library's own, or nothing is damaged.

    Args:
        error: The error.
        home: The home.
        checkpoint: The checkpoint of the query that it ended.
        tables: The tables that were read or written; a table whose files the error names is checked in any case.
    """
    if isinstance(error, StreamsError):
        return None
    named = [*_paths(error, home.root)]
    checkpoints = [] if checkpoint is None else [checkpoint]
    folders = {home.table(name): False for name in tables}
    for path in named:
        place = place_of(path)
        if place.kind == "checkpoint" and place.below:
            checkpoints.append(home.root / "checkpoints" / place.name / place.below[0])
        elif place.kind == "table":
            folders[home.table(place.name)] = True
    damages = [checkpoint_damage(each, with_state=True) for each in dict.fromkeys(checkpoints)]
    damages += [table_damage(each, with_contents=is_named) for each, is_named in folders.items()]
    damages += [_gone(path, checkpoints) for path in named]
    return next((each for each in damages if each is not None), None)


@contextmanager
def reporting_damage(home: Home, tables: Iterable[str] = ()) -> Iterator[None]:
    """Raises an error of the block as one about the damaged file behind it, where there is one; see `damage_behind`.

    Raises:
        DamagedFileError: There is.
    """
    try:
        yield
    except Exception as error:
        damaged = damage_behind(error, home, tables=tables)
        if damaged is None:
            raise
        raise damaged from error


def _paths(error: BaseException, root: Path) -> Iterator[Path]:
    """The paths below a folder that an error names; Spark writes some as URIs."""
    text = full_text(error)
    for spelling in dict.fromkeys((text, unquote(text))):
        for match in re.finditer(re.escape(str(root)) + "/" + _END, spelling):
            yield Path(match[0].rstrip("."))


def _gone(path: Path, checkpoints: Iterable[Path]) -> DamagedFileError | None:
    """The damage of a missing file of a checkpoint. A table's old versions may rightly lack files; a checkpoint may not
    lack one that Spark reads."""
    is_of_checkpoint = any(path.is_relative_to(each) for each in checkpoints)
    return DamagedFileError(path, "is gone") if is_of_checkpoint and not exists(path) else None
