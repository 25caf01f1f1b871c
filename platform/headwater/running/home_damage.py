"""Finds the files of a home that are gone or are not what was written.

`docs/reference/home.md` lists them.
"""

from collections.abc import Iterator
from pathlib import Path

from headwater_streams.backfill.status import list_backfills
from headwater_streams.quality import stored_results
from headwater_streams.spark.checkpoint_damage import checkpoint_damage
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import table_damage
from headwater_streams.storage.home import Home


def home_damage(folder: Path) -> Iterator[DamagedFileError]:
    """One finding for each checkpoint, table, backfill and stored result that has a damaged file.

    Of data files it checks that they exist and have their lengths; `headwater audit` also reads them.
    """
    home = Home(folder.resolve())
    for path in sorted((home.root / "checkpoints").glob("*")):
        last = home.last_generation(path.name)
        damaged = checkpoint_damage(home.checkpoint(path.name, last), with_state=True) if last else None
        if damaged is not None:
            yield damaged
    for name in home.tables():
        damaged = table_damage(home.table(name), with_contents=False)
        if damaged is not None:
            yield damaged
    damaged_files: list[DamagedFileError] = []
    list_backfills(home, damaged_files.append)
    stored_results(home.root, damaged=damaged_files.append)
    yield from (each for each in damaged_files if each.place.kind in ("backfill", "quality"))
