"""Rows for which a stateful job's function raises: found in the batch that failed, written down, left out.

Spark folds a batch's rows in the query itself, which ends with the first row that raises; to run the batch without
that row takes another query. So the rows are looked for in the batch's input, written down beside the checkpoint, and
the query is started again. It runs the same batch, in which these rows are bad from the start: they go to quarantine,
and all that reads the input again later leaves them out, too. The query's plan names the rows of batches that are not
done alone; those of the others stand in quarantine, by which what reads them again leaves them out. Those of
generations before are named in the first batch alone, which may read them again: behind it the query is started again
without them.

    batch 7   a b c d   c raises: the query ends    failing/7.json: c     batch 7, again   a b d     quarantine: c
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, SparkSession

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.record import Record
from headwater_streams.operators.recording import recording
from headwater_streams.operators.windows.spec import WindowSpec
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.stages.narrowing import FUNCTION, Place, failing_places
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS
from headwater_streams.spark.checkpoint import is_committed, last_planned
from headwater_streams.spark.frames import compute
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.files import exists, matching
from headwater_streams.storage.records import read_record, write_record

FOLDER = "failing"
"""The folder below a checkpoint. `N.json` has the failing rows of batch N, `before.json` those of the generations that
this one goes on from. Each is `{input: [[topic, partition, offset, reason], ...]}`."""

_BEFORE = "before.json"
_REBUILT = "rebuilt"
"""A folder in that one. Its `before.json` has the failing rows of the generation whose table a rebuild makes again. The
rebuild computes these rows like all others, and blames them sooner than others."""
_REMEDY = "remove it: the rows that it names are found again where they raise"

FailingByInput = Mapping[str, Mapping[Place, str]]
"""Rows by input and coordinates, with the reason."""


@dataclass(frozen=True, kw_only=True)
class FailingRows(Record):
    """A file of the folder. Its keys are names of inputs, beside the key of the version, which is no input's name."""

    WHAT = "the list of failing rows"
    FORMAT_KEY = "#format"

    rows: FailingByInput

    def to_json(self) -> dict[str, Any]:
        """The list as it is stored."""
        return self.version_key() | {
            name: [[*place, why] for place, why in sorted(each.items())] for name, each in self.rows.items()
        }

    @classmethod
    def from_json(cls, value: Any) -> "FailingRows":
        """The list as it was stored."""
        cls.require_version(value)
        return cls(
            rows={
                name: {(topic, p, offset): why for topic, p, offset, why in rows}
                for name, rows in value.items()
                if name != cls.FORMAT_KEY
            }
        )


def known_failing(checkpoint: Path) -> dict[str, dict[Place, str]]:
    """The failing rows of a job's generation so far, and of those that it goes on from."""
    return _read_all(matching(checkpoint / FOLDER, "*.json"))


def failing_to_come(checkpoint: Path) -> dict[str, dict[Place, str]]:
    """The failing rows of the batches that a query runs, again or for the first time, if it is started now.

    A warm-up, which is the first batch, reads again those of the generations before.
    """
    first, folder = _next_batch(checkpoint), checkpoint / FOLDER
    batches = [path for path in matching(folder, "*.json") if path.stem.isdigit() and int(path.stem) >= first]
    before = [folder / _BEFORE] if names_earlier(checkpoint) else []
    return _read_all([*before, *batches])


def names_earlier(checkpoint: Path) -> bool:
    """Whether a query that is started now names failing rows of the generations before, for its first batch."""
    return _next_batch(checkpoint) == 0 and exists(checkpoint / FOLDER / _BEFORE)


def _next_batch(checkpoint: Path) -> int:
    """The batch that a query which is started now runs first."""
    last = last_planned(checkpoint)
    return 0 if last is None else last + is_committed(checkpoint, last)


def in_ranges(rows: Mapping[Place, str], ranges: Ranges) -> dict[Place, str]:
    """Those of some rows whose offsets are in some ranges."""
    spans = {(topic, p): span for topic, partitions in ranges.items() for p, span in partitions.items()}

    def is_inside(place: Place) -> bool:
        topic, partition, offset = place
        start, end = spans.get((topic, partition), (0, 0))
        return start <= offset < end

    return {place: why for place, why in rows.items() if is_inside(place)}


def keep_failing(checkpoint: Path, batch: int, failing: FailingByInput) -> None:
    """Writes down the failing rows of a batch, beside those that were found in it before."""
    path = checkpoint / FOLDER / f"{batch}.json"
    known: dict[str, dict[Place, str]] = {name: {**rows} for name, rows in failing.items()}
    if exists(path):
        _take(known, path)
    _write(path, known)


def carry_failing(before: Path, checkpoint: Path) -> None:
    """Copies the failing rows of a generation to the next one, which reads its rows again or goes on from them."""
    _carry(before, checkpoint / FOLDER)


def carry_blamed(before: Path, checkpoint: Path) -> None:
    """Copies the failing rows of a generation to its rebuild, which is to blame the same row of each pair."""
    _carry(before, checkpoint / FOLDER / _REBUILT)


def _carry(before: Path, folder: Path) -> None:
    known = known_failing(before)
    if known:
        _write(folder / _BEFORE, known)


def blamed_before(checkpoint: Path) -> dict[str, dict[Place, str]]:
    """The failing rows of the generation whose table this one makes again; none where it is no rebuild."""
    return _read_all(matching(checkpoint / FOLDER / _REBUILT, "*.json"))


def failed_before(spark: SparkSession, quarantine: Path) -> DataFrame | None:
    """The places of the rows in a quarantine table for which functions raised; None without any."""
    rows = dataset_of(quarantine).to_table(list(PLACE), filter=ds.field("_check") == FUNCTION)
    return spark.createDataFrame(rows.combine_chunks()) if rows.num_rows else None


def _read_all(paths: Iterable[Path]) -> dict[str, dict[Place, str]]:
    failing: dict[str, dict[Place, str]] = {}
    for path in sorted(paths):
        _take(failing, path)
    return failing


def _take(failing: dict[str, dict[Place, str]], path: Path) -> None:
    try:
        for name, rows in read_record(path, FailingRows).rows.items():
            failing.setdefault(name, {}).update(rows)
    except DamagedFileError as error:
        raise error.with_remedy(_REMEDY) from error


def _write(path: Path, failing: FailingByInput) -> None:
    write_record(path, FailingRows(rows=failing))


def find_failing(
    plan: JobPlan,
    frames: Mapping[str, DataFrame],
    ranges: Mapping[str, Ranges],
    who: str,
    error: Exception,
    batches: int = 1,
) -> FailingByInput:
    """The rows of a batch for which the function raises.

    Args:
        plan: The job.
        frames: Each input's rows of the batch, as the function is given them, with their coordinates.
        ranges: Where they are from.
        who: The job and the batch, for a sentence.
        error: What the batch ended with.
        batches: Of how many batches of the job the rows are.

    Returns:
        It is empty where no row is to blame.

    Raises:
        RowErrorsError: There are more of them than the job allows.
    """
    job, failing = plan.job, dict[str, Mapping[Place, str]]()
    kept = {name: rows.persist() for name, rows in frames.items()}
    try:
        for name, rows in kept.items():
            none = {other: frame.limit(0) for other, frame in kept.items() if other != name}

            def compute_those(
                which: Column, name: str = name, rows: DataFrame = rows, none: Mapping[str, DataFrame] = none
            ) -> None:
                inputs = {name: rows.filter(which), **none}
                compute_function(plan, inputs)

            try:
                failing[name] = failing_places(job, compute_those, ranges[name], who, error, batches)
            except Exception as failure:
                if failure is not error:
                    raise
    finally:
        for rows in kept.values():
            rows.unpersist()
    return failing


def compute_function(plan: JobPlan, inputs: Mapping[str, DataFrame]) -> None:
    """Computes what a job's function makes of rows: windows and all, or what it hands to its join.

    Args:
        plan: The job.
        inputs: The rows of each input, with their coordinates.
    """
    frames = {name: hide(rows, ROW_COLUMNS) for name, rows in inputs.items()}
    if isinstance(plan.operator, WindowSpec):
        compute(plan.job.function(**frames))
        return
    with recording() as recorder:
        plan.job.function(**frames)
    for operator in recorder.uses:
        for rows in operator.handed.values():
            compute(rows)
