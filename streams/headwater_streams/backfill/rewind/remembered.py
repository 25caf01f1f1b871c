"""Whether a checkpoint still has what its job remembered after a batch."""

from pathlib import Path

from headwater_streams.backfill.store import BackfillError
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.operators.dedup.key_files import KeyFiles
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.open_rows import OpenRows
from headwater_streams.spark.checkpoint import is_committed, read_offsets
from headwater_streams.storage.files import matching

_REMEDY = "plan a rebuild: headwater backfill plan JOB --rebuild"


def why_forgotten(job: str, checkpoint: Path, batch: int) -> str | None:
    """Why a job's checkpoint cannot be put back to a batch, as a sentence; None where it has its offsets and state."""
    if read_offsets(checkpoint, batch) is not None and is_committed(checkpoint, batch):
        return None
    kept = sorted(int(file.name) for file in matching(checkpoint / "commits") if file.name.isdigit())
    oldest = f"its oldest is batch {kept[0]}" if kept else "it has none"
    return (
        f"the checkpoint of the job {job!r} has the offsets and the state of batch {batch} no more ({oldest}); "
        f"{_REMEDY}"
    )


def require_remembered(context: StageContext, job: str, checkpoint: Path, at: LedgerEntry) -> None:
    """Sees to it that a job can go on from a batch.

    Args:
        context: The session.
        job: The job.
        checkpoint: Its checkpoint.
        at: The entry of the batch.

    Raises:
        BackfillError: Its offsets, its state, its keys or its waiting rows are not kept any more.
    """
    why_not = why_forgotten(job, checkpoint, at.batch)
    if why_not is not None:
        raise BackfillError(why_not)
    if Extra.COLD.is_in(at):
        raise BackfillError(
            f"the job {job!r} has let go of what it had seen of some origins then (see headwater.seen), so records "
            f"read again could not be told from new ones; {_REMEDY}"
        )
    try:
        if Extra.KEYS_SINCE.is_in(at):
            KeyFiles(checkpoint).read(Extra.KEYS_SINCE.of(at), at.batch)
        OpenRows(context.spark, checkpoint, job).resume(at)
    except DataLossError as error:
        raise BackfillError(
            f"what the job {job!r} remembered after batch {at.batch} is not kept any more; {_REMEDY}"
        ) from error
