"""How long a backfill may take, told by what the live job's batches took."""

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from headwater_streams.backfill.estimate import estimated_s, live_rate
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.runtime.progress import ProgressLog
from headwater_streams.storage.home import Home

PLANNED = RebuildPlan(
    id="clean-1", job="clean", reference="", kind="row", target="silver.clicks", sides=(), further=(), keys=(),
    columns=(), fingerprint="f", base_generation=1, base_version=3, rows=9000,
)  # fmt: skip


def batch(home: Home, number: int, rows: int) -> None:
    source = SourceRange(input="clicks", ranges={"clicks": {0: (0, rows)}}, topic="clicks")
    terms = {"read": rows, "written": rows, "filtered": 0, "duplicate": 0, "quarantined": 0}
    entry = LedgerEntry(
        job="clean",
        generation=1,
        batch=number,
        table="silver.clicks",
        kind="row",
        sources=(source,),
        accounting={"clicks": terms},
    )
    write_deltalake(
        str(home.table("silver.clicks")),
        pa.table({"n": [1]}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
    )


def progress(home: Home, *took: tuple[int, int]) -> None:
    log = ProgressLog(home, 0)
    log.event("clean", "silver.clicks", 1, "started")
    for number, ms in took:
        # Spark counts a record twice that a batch reads twice, so its count is not what the rate goes by.
        told = {"timestamp": "2026-01-01T00:00:00Z", "batchId": number, "numInputRows": 10**9}
        log.batch("clean", "silver.clicks", 1, {**told, "durationMs": {"triggerExecution": ms}}, {})
        log.batch("other", "silver.clicks", 1, {**told, "durationMs": {"triggerExecution": 1}}, {})
    log.flush(now=True)


def test_estimate_goes_by_the_batches_that_hold_half_of_the_rows(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number, rows in enumerate((2, 4000, 3000, 1000, 0)):
        batch(home, number, rows)
    assert estimated_s(home, PLANNED) is None, "nothing says what a batch took"
    progress(home, (0, 900), (1, 2000), (2, 1500), (3, 1500), (4, 700))
    assert live_rate(home, "silver.clicks", "clean") == (4000 + 3000) / 3.5
    assert estimated_s(home, PLANNED) == 9000 / 2000


def test_estimate_of_a_job_whose_progress_is_of_other_batches_is_none(tmp_path: Path) -> None:
    home = Home(tmp_path)
    batch(home, 0, 5)
    progress(home, (7, 100))
    assert estimated_s(home, PLANNED) is None
