"""Loads a closed range of a topic into a table by batches of Spark, with a job's decoding, checks and account.

A load is no query: it has no checkpoint, and a broker keeps nothing of it. It runs the job's own row stage over records
that are read as a batch, chunk by chunk, and each chunk is one commit with a ledger entry. What was loaded is what the
entries say, so a load that was killed goes on behind its last commit, and `headwater audit` proves it as it proves a
job.
"""

from headwater_streams.runtime.loading.planning import (
    Chunk,
    LoadRefusedError,
    Sizes,
    chunks_of,
    remaining,
    requested,
    require_following,
)
from headwater_streams.runtime.loading.table_load import LoadProgress, TableLoad, load_job

__all__ = [
    "Chunk",
    "LoadProgress",
    "LoadRefusedError",
    "Sizes",
    "TableLoad",
    "chunks_of",
    "load_job",
    "remaining",
    "requested",
    "require_following",
]
