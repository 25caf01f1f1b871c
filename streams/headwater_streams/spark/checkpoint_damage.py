"""Whether those files of a checkpoint are what was written that Spark and a job read when the query starts.

metadata          the query's id
headwater.json    what the checkpoint was made with, see `spark.run_facts`
offsets/N         where batch N ends; N - 1 as well
commits/N         that batch N is done, and the watermark behind it
sources/n/0       where a Kafka source began
state/o/p/...     the state of operator o in piece p: files for each version, which is a batch's number and one
keys, open_rows   the state of `by_key` and of count windows, which the job itself reads when it starts
"""

import json
from collections.abc import Iterator
from pathlib import Path

from headwater_streams.spark.checkpoint import (
    id_of_query,
    is_committed,
    kafka_start,
    last_planned,
    next_watermark_ms,
    read_offsets,
)
from headwater_streams.spark.run_facts import RunFacts, facts_of_last_run
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import exists, file_bytes, files_below, matching
from headwater_streams.storage.stored_files import read_bytes


def checkpoint_damage(checkpoint: Path, *, with_state: bool = False) -> DamagedFileError | None:
    """The first damaged file of a checkpoint; None where there is none, or no batch has begun.

    Args:
        checkpoint: The checkpoint.
        with_state: Read the files of Spark's state, too, which may be large; Spark checks them when it loads them.
    """
    try:
        _require_logs(checkpoint)
        facts_of_last_run(checkpoint)
        if with_state:
            _require_state(checkpoint)
    except DamagedFileError as error:
        return error
    return None


def _last(checkpoint: Path) -> int | None:
    """The last batch that either log knows: a batch is planned before it is done."""
    planned = last_planned(checkpoint)
    done = [int(path.name) for path in matching(checkpoint / "commits") if path.name.isdecimal()]
    return max([*done, *([] if planned is None else [planned])], default=None)


def _require_logs(checkpoint: Path) -> None:
    id_of_query(checkpoint)
    last = _last(checkpoint)
    if last is None:
        return
    for batch in (last, last - 1) if last else (last,):
        if read_offsets(checkpoint, batch) is None:
            raise DamagedFileError(checkpoint / "offsets" / str(batch), "is gone")
    for batch in (last, last - 1):
        if is_committed(checkpoint, batch):
            next_watermark_ms(checkpoint, batch)
            break
    for batch in (-2, -1):  # as they were planned before the first
        read_offsets(checkpoint, batch)
    if is_committed(checkpoint, -1):
        next_watermark_ms(checkpoint, -1)
    for path in matching(checkpoint / "sources", "*/0"):
        kafka_start(checkpoint, int(path.parent.name))


def _require_state(checkpoint: Path) -> None:
    last = _last(checkpoint)
    if last is None:
        return
    # The state that batch `last` begins with, or that it left.
    version = last + 1 if is_committed(checkpoint, last) else last
    facts = facts_of_last_run(checkpoint)
    if version and facts is not None and _keeps_state(facts) and not exists(checkpoint / "state"):
        raise DamagedFileError(checkpoint / "state", "is gone, all of the state")
    for path in files_below(checkpoint / "state"):
        # Hadoop's files have a checksum beside them. Spark writes checksums of its own, which have one, too.
        if not path.name.startswith(".") and path.parent.name != "_metadata":
            _require_needed(path, version)
    for name in ("keys", "open_rows"):
        for path in files_below(checkpoint / name, "[!._]*"):
            read_bytes(path)
    for folder in _stores(checkpoint):
        for number in _versions_needed(folder, version):
            path = folder / f"{number}.delta"
            if not exists(path):
                raise DamagedFileError(path, "is gone, a part of the state")


def _keeps_state(facts: RunFacts) -> bool:
    """Whether Spark keeps state for the job; the state of count windows is in `open_rows`."""
    return facts.kind in ("window", "join") and not facts.operator.startswith("CountWindow")


def _require_needed(path: Path, version: int) -> None:
    number = path.name.split(".")[0].split("_")[0]
    if number.isdigit() and int(number) <= version:
        read_bytes(path)


def _stores(checkpoint: Path) -> Iterator[Path]:
    """The folders in which Spark's own store keeps a file for each version: each piece has the same ones."""
    for operator in matching(checkpoint / "state", "[0-9]*"):
        folders = {path.parent for path in files_below(operator, "*.delta")}
        stores = {folder.relative_to(operator).parts[1:] for folder in folders}
        for piece in range(_pieces(operator) if folders else 0):
            yield from (operator.joinpath(str(piece), *store) for store in sorted(stores))


def _pieces(operator: Path) -> int:
    """The number of pieces of an operator's state; 0 where its metadata, which is for readers of state, lacks it."""
    try:
        _, line, *_ = file_bytes(operator / "_metadata" / "metadata").splitlines()
        return max(int(store["numPartitions"]) for store in json.loads(line)["stateStoreInfo"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _versions_needed(folder: Path, version: int) -> range:
    """The versions whose files Spark reads to load one: those after the newest snapshot."""
    whole = (path.stem for path in matching(folder, "*.snapshot"))
    snapshots = [int(number) for number in whole if number.isdigit() and int(number) <= version]
    return range(max(snapshots, default=0) + 1, version + 1)
