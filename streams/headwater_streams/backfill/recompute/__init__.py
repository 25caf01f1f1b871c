"""Recomputes what a backfill wrote, by another path than the run's, and compares: the finding "recomputed".

    the run          topic -> (ingest table ->) batches or chunks -> state or shadow -> rows
    recomputed       topic -> one batch -> the job's function, once -> rows

Of the topic the offsets are read that the plan or the ledger says feed the rows; of a job that reads a table the rows
of those offsets, at the last version that the run read. Rejected, late and repeated records are left out by their
coordinates in the side tables or by the job's own definition. `rows` has row-by-row jobs, `dimensions` those whose
rows are change events, `windows` all kinds of windows and aggregates by key, `joins` joins of two streams. By default a
sample is, see `sampling`.
"""

from headwater_streams.backfill.recompute.of_rebuild import recompute_rebuild
from headwater_streams.backfill.recompute.of_repair import recompute_repair
from headwater_streams.backfill.recompute.outcome import Recompute, Recomputed

__all__ = ["Recompute", "Recomputed", "recompute_rebuild", "recompute_repair"]
