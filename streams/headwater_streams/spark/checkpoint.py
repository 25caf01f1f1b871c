"""What Spark's checkpoint says of a batch: `<checkpoint>/offsets/N` is written before batch N runs.

The file's first line is a version, the second the batch's metadata, then one line of JSON for each source in plan
order. A Kafka source writes `{"topic": {"0": 17}}` (the next offset of each partition), a Delta source writes the
next `reservoirVersion` with `index` -1 when whole commits were read. (Source: Spark's OffsetSeqLog.)

The checkpoint of a job with state also has `offsets/-2`, `offsets/-1` and `commits/-1`, until Spark lets go of them:
see `plan_before_first_batch`.

A file that is damaged raises `DamagedFileError`, whichever function reads it; see `checkpoint_damage` for all of them.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater_streams.base.ledger_entry import NO_WATERMARK_MS
from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import exists, matching, read_text, remove
from headwater_streams.storage.stored_files import parsed_json, read_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHOLE_COMMIT = -1


@dataclass(frozen=True)
class BatchOffsets:
    """The end of a batch in each of the query's sources, in plan order; None where a source had nothing yet."""

    watermark_ms: int
    sources: tuple[dict[str, Any] | None, ...]


def read_offsets(checkpoint: Path, batch: int) -> BatchOffsets | None:
    """The offsets of a batch, or None if the checkpoint has no such batch."""
    path = checkpoint / "offsets" / str(batch)
    if not exists(path):
        return None
    metadata, sources = _logged(path)
    ends = tuple(parsed_json(path, line) if line.startswith(b"{") else None for line in sources)
    return BatchOffsets(_number(path, metadata, "batchWatermarkMs"), ends)


def _logged(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    """The contents of a file of the offset log or the commit log: its metadata, and the lines behind it."""
    version, *lines = read_bytes(path).splitlines()
    if not version.startswith(b"v") or not lines:
        raise DamagedFileError(path, "is no file of a checkpoint: a version and an object belong there")
    return parsed_json(path, lines[0]), lines[1:]


def _number(path: Path, metadata: dict[str, Any], name: str) -> int:
    value = metadata.get(name)
    if not isinstance(value, int):
        raise DamagedFileError(path, f"does not say {name}")
    return value


def batches_retained(spark: "SparkSession") -> int:
    """For how many batches before the newest one Spark keeps offsets and state."""
    return int(str(spark.conf.get("spark.sql.streaming.minBatchesToRetain")))


def last_planned(checkpoint: Path) -> int | None:
    """The last batch whose offsets were written; None before the first."""
    return max(_planned(checkpoint), default=None)


def _planned(checkpoint: Path) -> list[int]:
    """The batches whose offsets the checkpoint has."""
    return [int(path.name) for path in matching(checkpoint / "offsets") if path.name.isdecimal()]


def version_read(checkpoint: Path, table_id: str) -> int | None:
    """The first version of a table that a query has not read in a committed batch; None where it has read nothing of
    the table."""
    batch = last_planned(checkpoint)
    if batch is None:
        return None
    done = read_offsets(checkpoint, batch if is_committed(checkpoint, batch) else batch - 1)
    offsets = (offset for offset in (done.sources if done is not None else ()) if offset is not None)
    return next((next_version(offset) for offset in offsets if offset.get("reservoirId") == table_id), None)


def next_batch(checkpoint: Path) -> tuple[int, int]:
    """The batch that a query with state runs first when it is started now, and its watermark in milliseconds since the
    epoch."""
    batch = last_planned(checkpoint)
    planned = None if batch is None else read_offsets(checkpoint, batch)
    if batch is None or planned is None:
        return 0, NO_WATERMARK_MS
    if not is_committed(checkpoint, batch):
        return batch, planned.watermark_ms
    return batch + 1, max(planned.watermark_ms, next_watermark_ms(checkpoint, batch))


def next_watermark_ms(checkpoint: Path, batch: int) -> int:
    """The watermark after a committed batch, in milliseconds since the epoch."""
    path = checkpoint / "commits" / str(batch)
    return _number(path, _logged(path)[0], "nextBatchWatermarkMs")


def is_committed(checkpoint: Path, batch: int) -> bool:
    """Whether Spark has committed a batch: it will not be run again."""
    return exists(checkpoint / "commits" / str(batch))


def first_lost(checkpoint: Path, done: int) -> int | None:
    """The first batch that read something and that Spark has committed, though the table ends before it: the table's
    commit is gone. None where there is none; a job's very first batch may be a warm-up, which commits nothing.

    Args:
        checkpoint: The query's checkpoint.
        done: The last batch that the job's table has; -1 for none.
    """
    for batch in sorted(batch for batch in _planned(checkpoint) if batch > max(done, 0)):
        before = read_offsets(checkpoint, batch - 1)
        end = (
            read_offsets(checkpoint, batch)
            if before is not None and is_committed(checkpoint, batch)
            else None
        )
        if before is None or end is None:
            continue
        if any(_goes_on(*pair) for pair in zip(before.sources, end.sources, strict=False)):
            return batch
    return None


def lost_batch_message(job: str, table: str, lost: int, done: int) -> str:
    """The message about a lost batch (`first_lost`), without the remedy."""
    last = f"ends with batch {done}" if done >= 0 else "has no batch"
    return f"job {job!r}: it has done with batch {lost}, and {table} {last}: commits of its log are gone"


def _goes_on(before: dict[str, Any] | None, end: dict[str, Any] | None) -> bool:
    """Whether there are offsets, or commits, between two lines of a source; a new partition alone does not count."""
    if end is None or "reservoirVersion" in end:
        return end is not None and end["reservoirVersion"] > (before or {}).get("reservoirVersion", 0)
    read = before or {}
    return any(
        int(offset) > int(read.get(topic, {}).get(partition, 0))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )


def kafka_start(checkpoint: Path, source: int) -> dict[str, dict[str, int]]:
    """Where a Kafka source began: it writes its first offsets to `sources/<n>/0` before the first batch."""
    path = checkpoint / "sources" / str(source) / "0"
    data = read_bytes(path)
    start: dict[str, dict[str, int]] = parsed_json(path, data[max(data.find(b"{"), 0) :])
    return start


def id_of_query(checkpoint: Path) -> str | None:
    """The id that Spark gave the query; None before its first start."""
    path = checkpoint / "metadata"
    if not exists(path):
        return None
    query_id = parsed_json(path, read_bytes(path)).get("id")
    if not isinstance(query_id, str):
        raise DamagedFileError(path, "does not say id")
    return query_id


def put_back_id(checkpoint: Path) -> None:
    """Gives a query that has planned batches another id, if the file of its id is gone.

    Spark 4.1 does so itself. 4.2 refuses to start such a query, as some sinks recognise a batch by the query's id. Our
    tables do not: they recognise it by a name of Headwater's own.
    """
    if not exists(checkpoint / "metadata") and last_planned(checkpoint) is not None:
        remove(checkpoint / ".metadata.crc")  # Hadoop's checksum of the file that is gone
        _write_id(checkpoint, str(uuid.uuid4()))


def remove_half_written(checkpoint: Path) -> None:
    """Removes what a killed process left of a query's first batch before that was planned.

    Spark writes each file of its logs beside its place first. From 4.2 on it refuses to start a query that has planned
    nothing where such a file is left, and would so for ever.
    """
    if last_planned(checkpoint) is None:
        for folder in ("offsets", "commits"):
            for path in matching(checkpoint / folder, ".*"):
                remove(path)


def _write_id(checkpoint: Path, query_id: str) -> None:
    with atomic_file(checkpoint / "metadata") as file:
        file.write(json.dumps({"id": query_id}).encode())


def next_version(offset: dict[str, Any]) -> int:
    """The first table version that a Delta source has not read yet.

    Raises:
        ValueError: The batch ended inside a commit, which the library never requests.
    """
    if offset["index"] == _WHOLE_COMMIT:
        return int(offset["reservoirVersion"])
    raise ValueError(f"the batch ended inside commit {offset['reservoirVersion']}")


def table_offset(table_id: str, version: int) -> str:
    """The line of a Delta source that has read every commit before a version, whole."""
    return json.dumps(
        {
            "sourceVersion": 1,
            "reservoirId": table_id,
            "reservoirVersion": version,
            "index": _WHOLE_COMMIT,
            "isStartingVersion": False,
        },
        separators=(",", ":"),
    )


def plan_first_batch(checkpoint: Path, query_id: str, metadata: str, sources: Sequence[str | None]) -> None:
    """Writes the offsets of batch 0 for a query that has not begun, so that it runs that batch as planned here.

    Args:
        checkpoint: The query's checkpoint.
        query_id: The id that the query gets.
        metadata: The batch's metadata, Spark's `OffsetSeqMetadata` as JSON.
        sources: The end of the batch in each source, in plan order; None for one that has nothing yet.
    """
    _write_id(checkpoint, query_id)
    with atomic_file(checkpoint / "offsets" / "0") as file:
        file.write("\n".join(["v1", metadata, *(line or "-" for line in sources)]).encode())


def plan_before_first_batch(checkpoint: Path, query_id: str, metadata: str, sources: int) -> None:
    """Writes a committed batch -1, and one before it, for a query that has not begun: its batch 0, which Spark plans as
    usual, then begins with their watermark. (Source: Spark's MicroBatchExecution.populateStartOffsets.)

    Args:
        checkpoint: The query's checkpoint.
        query_id: The id that the query gets.
        metadata: The metadata of both, as in `plan_first_batch`.
        sources: How many sources the query has; these batches read nothing of them.
    """
    done = json.dumps(
        {"nextBatchWatermarkMs": json.loads(metadata)["batchWatermarkMs"]}, separators=(",", ":")
    )
    lines = "\n".join(["v1", metadata, *["-"] * sources]).encode()
    texts = {
        "metadata": json.dumps({"id": query_id}).encode(),
        "offsets/-2": lines,
        "offsets/-1": lines,
        "commits/-1": f"v1\n{done}".encode(),
    }
    # The commit first: Spark would run a batch -1 that is planned and not committed.
    for name, text in sorted(texts.items()):
        with atomic_file(checkpoint / name) as file:
            file.write(text)


def plan_closing_batch(checkpoint: Path) -> None:
    """Writes the offsets of the batch without rows that has to follow, if the query ended before Spark planned it.

    A batch with rows moves the watermark for the next one. Spark plans that where nothing new came, but forgets it when
    the query is started again: the windows that it closes would wait for the next record.
    """
    last = last_planned(checkpoint)
    if last is None or not is_committed(checkpoint, last):
        return
    batch, watermark_ms = next_batch(checkpoint)
    version, metadata, *sources = read_text(checkpoint / "offsets" / str(last)).splitlines()
    before = json.loads(metadata)
    if watermark_ms <= before["batchWatermarkMs"]:
        return
    moved = json.dumps({**before, "batchWatermarkMs": watermark_ms}, separators=(",", ":"))
    with atomic_file(checkpoint / "offsets" / str(batch)) as file:
        file.write("\n".join([version, moved, *sources]).encode())


def begin_kafka(checkpoint: Path, source: int, offsets: str) -> None:
    """Writes where a Kafka source begins, as it would itself before its first batch."""
    with atomic_file(checkpoint / "sources" / str(source) / "0") as file:
        # KafkaSourceInitialOffsetWriter: a byte that Spark 2.1 wants, then a version and the offsets.
        file.write(b"\0v1\n" + offsets.encode())
