"""Where a job's recent keys are stored: one Arrow file for each batch, below its checkpoint, written before the commit.

    <checkpoint>/keys/17.arrow     the keys of the rows that batch 17 kept, in `recent_keys.KEY_SCHEMA`

A file counts once its batch is committed: after a crash in between, the batch runs again and writes it anew. Its
schema's metadata has `since`, the first batch whose keys are needed after this one. Files stay until Spark, too, has
removed the offsets of every batch that needs them, so that a job can be put back to any batch of its checkpoint.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.target import declared_name
from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import matching, remove

_SUFFIX = ".arrow"
_SINCE = b"since"


class KeyFiles:
    """The files of one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "keys"
        self._newest_us: dict[int, int] = {}

    def read(self, since: int, last: int) -> list[pa.Table]:
        """The keys of the batches from `since` to `last`, oldest first.

        Raises:
            DamagedFileError: A file is missing or cannot be read.
        """
        tables = []
        for batch in range(since, last + 1):
            try:
                with pa.ipc.open_file(self._path(batch)) as reader:
                    tables.append(reader.read_all().replace_schema_metadata())
            except (OSError, pa.ArrowInvalid) as error:
                job = declared_name(self._folder.parent.parent.name)
                wrong = "is gone" if isinstance(error, FileNotFoundError) else "is not what was written"
                raise DamagedFileError(
                    self._path(batch),
                    f"{wrong}, without which duplicates of keys of batch {batch} cannot be told",
                    "put the checkpoint back, or begin a new generation with an empty table: headwater jobs rebuild "
                    f"{job}",
                ) from error
            self._note(batch, tables[-1])
        return tables

    def write(self, batch: int, keys: pa.Table, horizon_us: int | None) -> None:
        """Writes the keys of a batch that is about to be committed.

        Args:
            batch: The batch.
            keys: Its keys.
            horizon_us: Keys of rows older than this are not needed; None: all are.
        """
        self._note(batch, keys)
        stamped = keys.replace_schema_metadata({_SINCE: str(self.since(horizon_us, batch))})
        with atomic_file(self._path(batch)) as file, pa.ipc.new_file(file, stamped.schema) as writer:
            writer.write_table(stamped)

    def since(self, horizon_us: int | None, batch: int) -> int:
        """The first batch up to `batch` whose keys are still needed; those of all later ones are needed, too."""
        needed = [b for b, newest in self._newest_us.items() if horizon_us is None or newest >= horizon_us]
        return min([b for b in needed if b <= batch], default=batch)

    def forget(self, batch: int, batches_retained: int) -> None:
        """Removes the files that none of the last `batches_retained` batches up to this one needs."""
        needed = self._needed_since(batch - batches_retained)
        for path in matching(self._folder, f"*{_SUFFIX}"):
            if path.stem.isdigit() and int(path.stem) < needed:
                remove(path)
                self._newest_us.pop(int(path.stem), None)

    def _needed_since(self, batch: int) -> int:
        """The first batch whose keys are needed after this one, as its file says; -1 where there is none."""
        try:
            with pa.ipc.open_file(self._path(batch)) as reader:
                return int((reader.schema.metadata or {}).get(_SINCE, -1))
        except (FileNotFoundError, pa.ArrowInvalid):
            return -1

    def _note(self, batch: int, keys: pa.Table) -> None:
        newest = pc.max(keys["at_us"]).as_py()
        self._newest_us[batch] = -(2**63) if newest is None else newest

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch}{_SUFFIX}"
