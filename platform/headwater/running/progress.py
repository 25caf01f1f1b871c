"""What running jobs do now, from `headwater.progress` and their locks; no Spark and no broker is needed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.running.leases import is_running
from headwater_streams.base.target import declared_name
from headwater_streams.storage.home import Home

_LATEST = 100
ENDED_BADLY = ("failed", "refused", "blocked")
_VERBS = {"refused": "was refused", "blocked": "does not run", "waiting": "waits"}


@dataclass(frozen=True)
class JobProgress:
    """What a job did last.

    Attributes:
        job: The job.
        table: Its target.
        state: "running", "waiting" (it is started again after a pause, or has not begun), "failed", "refused" (it is
            wrong, or not what its last run was), "blocked" (one whose table it reads is one of these) or "stopped";
            "killed" where its process ended without a last event.
        message: Why it failed, was refused, is blocked or waits, or what it does first.
        events: Its newest rows of the table, oldest first.
    """

    job: str
    table: str
    state: str
    message: str | None
    events: list[dict[str, Any]]

    @property
    def is_ended_badly(self) -> bool:
        """Whether it does not run any more, though nobody stopped it; `killed` is not known to be so."""
        return self.state in ENDED_BADLY

    def sentence(self, *, has_committed: bool) -> str:
        """Why it does not run, with its name."""
        before = "" if has_committed or self.state != "failed" else " before it had committed anything"
        return f"{self.job} {_VERBS.get(self.state, self.state)}{before}: {self.message}"

    @property
    def batches(self) -> list[dict[str, Any]]:
        """The rows that are about batches."""
        return [event for event in self.events if event["event"] == "batch"]

    @property
    def at(self) -> datetime:
        """The time of its newest event."""
        at: datetime = self.events[-1]["happened_at"]
        return at

    @property
    def begun_at(self) -> datetime:
        """When it was started last; where that is too long ago, the time of its oldest event that is held."""
        begun = [event for event in self.events if event["event"] == "started"]
        at: datetime = (begun[-1] if begun else self.events[0])["happened_at"]
        return at

    def row(self) -> dict[str, Any]:
        """The job in one line."""
        last = self.batches[-1] if self.batches else {}
        rows = sum(batch["rows"] for batch in self.batches)
        took_ms = sum(batch["duration_ms"] or 0 for batch in self.batches)
        return {
            "job": self.job,
            "table": self.table,
            "state": self.state,
            "batch": last.get("batch"),
            "at": last.get("happened_at") or self.at,
            "rows": last.get("rows"),
            "duration_ms": last.get("duration_ms"),
            "rows_per_busy_s": round(rows / took_ms * 1000) if took_ms else None,
            "behind": last.get("behind"),
            "watermark": last.get("watermark"),
            "state_rows": sum(each["rows"] or 0 for each in last.get("operators") or ()) or None,
            "message": self.message,
        }


def is_of(job: str, names: Collection[str]) -> bool:
    """Whether it is one of the named jobs, or a part of one: what ingests a topic for it, or a step of it."""
    return job in names or declared_name(job) in names


def without_left_over(progress: Sequence[JobProgress]) -> list[JobProgress]:
    """Those of parts that their jobs are still made of, and of jobs: a part begins before its job does, and ends with
    it, so one that ended badly before its job was started again belongs to other code."""
    begun_at = {each.job: each.begun_at for each in progress}

    def is_left_over(each: JobProgress) -> bool:
        job = declared_name(each.job)
        return each.job != job and job in begun_at and each.is_ended_badly and each.at < begun_at[job]

    return [each for each in progress if not is_left_over(each)]


def progress_of(home: Path, jobs: Collection[str] | None = None) -> list[JobProgress]:
    """What the jobs of a home did last, those named with their parts or all that ever ran, by name.

    Raises:
        DamagedFileError: A file of the table is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater_streams.runtime.progress import PROGRESS_TABLE
    from headwater_streams.storage.delta_files import reading
    from headwater_streams.storage.delta_log import has_versions
    from headwater_streams.storage.delta_rows import dataset_of

    path = Home(home).table(PROGRESS_TABLE)
    if not has_versions(path):
        return []
    rows: dict[str, list[dict[str, Any]]] = {}
    dataset, condition = dataset_of(path), None
    if jobs is not None:
        with reading(path):
            all_jobs = pc.unique(dataset.to_table(columns=["job"])["job"]).to_pylist()
        selected = pa.array([job for job in all_jobs if is_of(job, jobs)], pa.string())
        condition = pc.field("job").isin(selected)
    with reading(path):
        events = dataset.to_table(filter=condition).sort_by("happened_at").to_pylist()
    for row in events:
        rows.setdefault(row["job"], []).append(row)
    return [_of(home, job, of_job[-_LATEST:]) for job, of_job in sorted(rows.items())]


def _of(home: Path, job: str, events: list[dict[str, Any]]) -> JobProgress:
    last = next((event for event in reversed(events) if event["event"] != "batch"), events[-1])
    running = is_running(home, job)
    state = last["event"]
    if state in ("started", "batch"):
        state = "running" if running else "killed"
    is_elsewhere = running and state in (
        *ENDED_BADLY,
        "waiting",
    )  # this was a second process, which could not begin
    if is_elsewhere:
        state = "running"
    # The message of a start is over with its first batch.
    is_current = not is_elsewhere and (last["event"] != "started" or last is events[-1])
    return JobProgress(job, events[-1]["table"], state, last["message"] if is_current else None, events)
