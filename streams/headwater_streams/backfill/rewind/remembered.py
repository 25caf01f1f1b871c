"""Whether a checkpoint still has what its job remembered after a batch."""

from dataclasses import dataclass
from pathlib import Path

from headwater_streams.backfill.refusal import Refusal, accepted
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.operators.dedup.key_files import KeyFiles
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.open_rows import OpenRows
from headwater_streams.spark.checkpoint import is_committed, read_offsets
from headwater_streams.storage.files import matching

_REMEDY = "plan a rebuild: headwater backfill plan JOB --rebuild"


@dataclass(frozen=True, kw_only=True)
class KeptBatches:
    """What a checkpoint has of its batches.

    Attributes:
        has_it: Whether it has the offsets and the state of the one that is meant.
        batches: All of which it has the state.
    """

    has_it: bool
    batches: tuple[int, ...] = ()


def kept_batches(checkpoint: Path, batch: int) -> KeptBatches:
    """What a checkpoint has, of one batch and at all."""
    if read_offsets(checkpoint, batch) is not None and is_committed(checkpoint, batch):
        return KeptBatches(has_it=True)
    kept = sorted(int(file.name) for file in matching(checkpoint / "commits") if file.name.isdigit())
    return KeptBatches(has_it=False, batches=tuple(kept))


def why_forgotten(job: str, batch: int, kept: KeptBatches) -> str | None:
    """Why a job's checkpoint cannot be put back to a batch, as a sentence; None where it has its offsets and state."""
    if kept.has_it:
        return None
    oldest = f"its oldest is batch {kept.batches[0]}" if kept.batches else "it has none"
    return (
        f"the checkpoint of the job {job!r} has the offsets and the state of batch {batch} no more ({oldest}); "
        f"{_REMEDY}"
    )


def keeps_the_rest(context: StageContext, job: str, checkpoint: Path, at: LedgerEntry) -> bool:
    """Whether a checkpoint has the keys that a job had seen by a batch, and the rows that waited then."""
    try:
        if Extra.KEYS_SINCE.is_in(at):
            KeyFiles(checkpoint).read(Extra.KEYS_SINCE.of(at), at.batch)
        OpenRows(context.spark, checkpoint, job).resume(at)
    except DataLossError:
        return False
    return True


def forgotten(job: str, at: LedgerEntry, kept: KeptBatches, *, keeps_rest: bool) -> Refusal | None:
    """Refuses to go on from a batch of which the offsets, the state, the keys or the waiting rows are not kept.

    Args:
        job: The job.
        at: The entry of the batch.
        kept: What the checkpoint has of its batches.
        keeps_rest: Whether it has the keys and the rows.
    """
    why_not = why_forgotten(job, at.batch, kept)
    if why_not is not None:
        return Refusal(why_not)
    if Extra.COLD.is_in(at):
        return Refusal(
            f"the job {job!r} has let go of what it had seen of some origins then (see headwater.seen), so records "
            f"read again could not be told from new ones; {_REMEDY}"
        )
    if not keeps_rest:
        return Refusal(
            f"what the job {job!r} remembered after batch {at.batch} is not kept any more; {_REMEDY}"
        )
    return None


def require_remembered(context: StageContext, job: str, checkpoint: Path, at: LedgerEntry) -> None:
    """Sees to it that a job can go on from a batch; see `forgotten`.

    Raises:
        BackfillError: It cannot.
    """
    kept = kept_batches(checkpoint, at.batch)
    rest = not kept.has_it or keeps_the_rest(context, job, checkpoint, at)
    accepted(forgotten(job, at, kept, keeps_rest=rest))
