"""Rows for which a stateful job's function raises: found in the batch that failed, written down, left out.

Spark folds a batch's rows in the query itself, which ends with the first row that raises; to run the batch without
that row takes another query. So the rows are looked for in the batch's input, written down beside the checkpoint, and
the query is started again. It runs the same batch, in which these rows are bad from the start: they go to quarantine,
and all that reads the input again later leaves them out, too.

    batch 7   a b c d   c raises: the query ends    failing/7.json: c     batch 7, again   a b d     quarantine: c
"""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame

from headwater_streams.damage import DamagedFileError
from headwater_streams.gateway import compute
from headwater_streams.ledger.entry import Ranges
from headwater_streams.runtime.operators import recording
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stages.narrowing import Place, failing_places
from headwater_streams.sources.coordinates import ROW_COLUMNS, hide
from headwater_streams.stored_files import read_json, write_json
from headwater_streams.windows.spec import WindowSpec

FOLDER = "failing"
"""Below a checkpoint: `N.json` is what was found in batch N, `before.json` in generations that this one goes on from;
each is `{input: [[topic, partition, offset, reason], ...]}`."""

_REMEDY = "remove it: the rows that it names are found again where they raise"

Found = Mapping[str, Mapping[Place, str]]
"""Rows by input and coordinates, with the reason."""


def known_failing(checkpoint: Path) -> dict[str, dict[Place, str]]:
    """What was found so far in a job's generation, and in those that it goes on from."""
    found: dict[str, dict[Place, str]] = {}
    for path in sorted((checkpoint / FOLDER).glob("*.json")):
        _take(found, path)
    return found


def keep_failing(checkpoint: Path, batch: int, found: Found) -> None:
    """Writes down what was found in a batch, beside what was found in it before."""
    path = checkpoint / FOLDER / f"{batch}.json"
    known: dict[str, dict[Place, str]] = {name: {**rows} for name, rows in found.items()}
    if path.exists():
        _take(known, path)
    _write(path, known)


def carry_failing(before: Path, checkpoint: Path) -> None:
    """Has a generation know what the one before it knew, whose rows it reads again or goes on from."""
    known = known_failing(before)
    if known:
        _write(checkpoint / FOLDER / "before.json", known)


def _take(found: dict[str, dict[Place, str]], path: Path) -> None:
    try:
        for name, rows in read_json(path).items():
            found.setdefault(name, {}).update({(topic, p, offset): why for topic, p, offset, why in rows})
    except DamagedFileError as error:
        raise error.with_remedy(_REMEDY) from error
    except (TypeError, ValueError) as error:
        raise DamagedFileError(path, f"does not name rows ({error})", _REMEDY) from error


def _write(path: Path, found: Found) -> None:
    rows = {name: [[*place, why] for place, why in sorted(each.items())] for name, each in found.items()}
    write_json(path, rows)


def find_failing(
    plan: JobPlan,
    frames: Mapping[str, DataFrame],
    ranges: Mapping[str, Ranges],
    who: str,
    error: Exception,
) -> Found:
    """The rows of a batch for which the function raises.

    Args:
        plan: The job.
        frames: Each input's rows of the batch, as the function is given them, with their coordinates.
        ranges: Where they are from.
        who: The job and the batch, for a sentence.
        error: What the batch ended with.

    Returns:
        None of any input, where no row is to blame.

    Raises:
        RowErrorsError: There are more of them than the job allows.
    """
    job, found = plan.job, dict[str, Mapping[Place, str]]()
    kept = {name: rows.persist() for name, rows in frames.items()}
    try:
        for name, rows in kept.items():
            none = {other: frame.limit(0) for other, frame in kept.items() if other != name}

            def compute_those(
                which: Column, name: str = name, rows: DataFrame = rows, none: Mapping[str, DataFrame] = none
            ) -> None:
                given = {name: rows.filter(which), **none}
                _compute(plan, {each: hide(frame, ROW_COLUMNS) for each, frame in given.items()})

            try:
                found[name] = failing_places(job, compute_those, ranges[name], who, error)
            except Exception as failure:
                if failure is not error:
                    raise
    finally:
        for rows in kept.values():
            rows.unpersist()
    return found


def _compute(plan: JobPlan, frames: Mapping[str, DataFrame]) -> None:
    """Computes what the function makes of rows: windows and all, or what it hands to its join."""
    if isinstance(plan.operator, WindowSpec):
        compute(plan.job.function(**frames))
        return
    with recording() as recorder:
        plan.job.function(**frames)
    for operator in recorder.made:
        for rows in operator.handed.values():
            compute(rows)
