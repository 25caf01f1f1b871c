"""What Spark's checkpoint says of a batch: `<checkpoint>/offsets/N` is written before batch N runs.

The file's first line is a version, the second the batch's metadata, then one line of JSON for each source in plan
order. A Kafka source writes `{"topic": {"0": 17}}` (the next offset of each partition), a Delta source writes the
next `reservoirVersion` with `index` -1 when whole commits were read. (Source: Spark's OffsetSeqLog.)

The checkpoint of a job with state also has `offsets/-2`, `offsets/-1` and `commits/-1`, until Spark lets go of them:
see `plan_before_first_batch`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater_streams.atomic_file import atomic_file
from headwater_streams.ledger.entry import NO_WATERMARK_MS

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
    if not path.exists():
        return None
    _version, metadata, *sources = path.read_text().splitlines()
    return BatchOffsets(
        int(json.loads(metadata)["batchWatermarkMs"]),
        tuple(json.loads(line) if line.startswith("{") else None for line in sources),
    )


def batches_kept(spark: "SparkSession") -> int:
    """Of how many batches before the newest one Spark keeps the offsets and the state."""
    return int(str(spark.conf.get("spark.sql.streaming.minBatchesToRetain")))


def last_planned(checkpoint: Path) -> int | None:
    """The last batch whose offsets were written down; None before the first."""
    found = [int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    return max(found, default=None)


def version_read(checkpoint: Path, table_id: str) -> int | None:
    """The first version of a table that a query has not read in a batch that Spark has done with; None where it has
    read nothing of it."""
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
    _version, metadata, *_ = (checkpoint / "commits" / str(batch)).read_text().splitlines()
    return batch + 1, max(planned.watermark_ms, int(json.loads(metadata)["nextBatchWatermarkMs"]))


def is_committed(checkpoint: Path, batch: int) -> bool:
    """Whether Spark has done with a batch: it will not be run again."""
    return (checkpoint / "commits" / str(batch)).exists()


def kafka_start(checkpoint: Path, source: int) -> dict[str, dict[str, int]]:
    """Where a Kafka source began: it writes its first offsets to `sources/<n>/0` before the first batch."""
    text = (checkpoint / "sources" / str(source) / "0").read_text()
    start: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
    return start


def next_version(offset: dict[str, Any]) -> int:
    """The first table version that a Delta source has not read yet.

    Raises:
        ValueError: The batch ended inside a commit, which the library's readers never ask for.
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
    """Writes the offsets of batch 0 for a query that has not begun, which then runs it as it is planned here.

    Args:
        checkpoint: The query's checkpoint.
        query_id: The id that the query gets.
        metadata: The batch's metadata, Spark's `OffsetSeqMetadata` as JSON.
        sources: The end of the batch in each source, in plan order; None for one that has nothing yet.
    """
    with atomic_file(checkpoint / "metadata") as file:
        file.write(json.dumps({"id": query_id}).encode())
    with atomic_file(checkpoint / "offsets" / "0") as file:
        file.write("\n".join(["v1", metadata, *(line or "-" for line in sources)]).encode())


def plan_before_first_batch(checkpoint: Path, query_id: str, metadata: str, sources: int) -> None:
    """Writes a batch -1 that is done, and one before it, for a query that has not begun: so its batch 0, which Spark
    plans as ever, begins with the watermark of that batch. (Source: Spark's MicroBatchExecution.populateStartOffsets.)

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
    # The commit first: batch -1, planned and not done, would be run.
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
    version, metadata, *sources = (checkpoint / "offsets" / str(last)).read_text().splitlines()
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
