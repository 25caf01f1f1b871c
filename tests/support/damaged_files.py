"""Ways in which a file comes to harm, and a small home of files to do that to, made without Spark."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.runtime.facts import keep_facts
from headwater_streams.spark.run_facts import InputFacts, RunFacts
from headwater_streams.storage.home import Home


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage\xfe" * 7),
    "one bit": _flip,
    "cut": _cut,
}


def with_checksum(path: Path) -> Path:
    """Writes beside a file what Hadoop does, and gives the file."""
    data, piece = path.read_bytes(), 512
    checksums = [zlib.crc32(data[at : at + piece]).to_bytes(4, "big") for at in range(0, len(data), piece)]
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + piece.to_bytes(4, "big") + b"".join(checksums))
    return path


def write_batch(home: Home, table: str, batch: int, rows: int) -> None:
    """Commits a batch of rows to a table as its job does, `schema.job` being written by `job`, of a topic `clicks`."""
    job = table.partition(".")[2]
    start = batch * rows
    entry = LedgerEntry(
        job=job,
        generation=1,
        batch=batch,
        table=table,
        kind="row",
        sources=(SourceRange(input="clicks", ranges={"clicks": {0: (start, start + rows)}}, topic="clicks"),),
        accounting={"clicks": {"read": rows, "written": rows}},
        partitions={"clicks": {0: {"read": rows, "written": rows}}},
    )
    columns = {
        "n": pa.array(range(start, start + rows), pa.int64()),
        "_topic": pa.array(["clicks"] * rows),
        "_partition": pa.array([0] * rows, pa.int32()),
        "_offset": pa.array(range(start, start + rows), pa.int64()),
        "_batch": pa.array([batch] * rows, pa.int64()),
        "_generation": pa.array([1] * rows, pa.int32()),
    }
    write_deltalake(
        str(home.table(table)),
        pa.table(columns),
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": entry.to_json()},
            app_transactions=[Transaction(f"{job}/1", batch)],
        ),
    )
    log = home.table(table) / "_delta_log" / f"{batch:020d}.json"
    with_checksum(log)


def write_checkpoint(home: Home, table: str, batches: int, rows: int, kind: str = "row") -> Path:
    """Writes what Spark and the library do below the checkpoint of a table's job."""
    job = table.partition(".")[2]
    checkpoint = home.checkpoint(job, 1)
    files: dict[str, str] = {
        "metadata": json.dumps({"id": "a9"}),
        "sources/0/0": '\0v1\n{"clicks":{"0":0}}',
    }
    for batch in range(batches):
        metadata = {"batchWatermarkMs": 5}
        ends = {"clicks": {"0": (batch + 1) * rows}}
        files[f"offsets/{batch}"] = f"v1\n{json.dumps(metadata)}\n{json.dumps(ends)}"
        files[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":7}'
        if kind != "row":
            files |= {f"state/0/{piece}/{batch + 1}.delta": f"state of {batch}" * 99 for piece in (0, 1)}
            files["state/0/_metadata/metadata"] = 'v1\n{"stateStoreInfo":[{"numPartitions":2}]}'
    for name, text in files.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        with_checksum(path)
    facts = RunFacts(
        spark="4.1.3",
        kind=kind,
        targets={table: "an-id"},
        keys=(),
        mode="append",
        inputs={
            "clicks": InputFacts(
                kind="topic", ids={"clicks": "an-id"}, watermark=None, columns={"n": "bigint"}
            )
        },
        operator="",
        state=(),
        columns={"n": "bigint"},
        shuffle_partitions="2",
        state_store="x.Store",
        dedup="None",
        fingerprint="aa",
    )
    keep_facts(checkpoint, facts)
    return checkpoint
