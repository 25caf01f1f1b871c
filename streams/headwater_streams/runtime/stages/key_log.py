"""The recent keys of a running row job. Rows are judged against them; they are written before a commit and count after
it."""

import pyarrow as pa

from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.operators.dedup.by_key import ByKey
from headwater_streams.operators.dedup.key_files import KeyFiles
from headwater_streams.operators.dedup.recent_keys import RecentKeys
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.spark.checkpoint import batches_retained


class KeyLog:
    """What `by_key` remembers, in memory and below the checkpoint; the ledger entry says from which batch on."""

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        dedup, (declared,) = plan.job.dedup, plan.job.inputs.values()
        assert isinstance(dedup, ByKey)
        assert declared.watermark is not None, "the plan was checked"
        self._keys = RecentKeys.of(dedup, declared.watermark)
        self._files = KeyFiles(context.home.checkpoint(plan.job.name, generation))
        self._batches_kept = batches_retained(context.spark)
        self._new_keys: pa.Table | None = None

    def resume(self, entry: LedgerEntry) -> None:
        """Takes up what the batches up to that of the entry kept.

        Raises:
            DamagedFileError: A file that is needed is not there.
        """
        for keys in self._files.read(Extra.KEYS_SINCE.get(entry, entry.batch + 1), entry.batch):
            self._keys.add(keys)

    def judge(self, batch: int, keys: pa.Table) -> pa.Table:
        """The duplicates of a batch, with their verdict; the keys of its other rows are written for `committed`."""
        judged = self._keys.judge(keys)
        self._files.write(batch, judged.kept, self._keys.horizon_us)
        self._new_keys = judged.kept
        return judged.rows

    def entry_terms(self, batch: int) -> ExtraValues:
        """What the batch's ledger entry must say."""
        return {Extra.KEYS_SINCE: self._files.since(self._keys.horizon_us, batch)}

    def committed(self, batch: int) -> None:
        """Remembers the batch, and forgets what no row of any batch that Spark still knows is compared with."""
        assert self._new_keys is not None
        self._files.forget(batch, self._batches_kept)
        self._keys.add(self._new_keys)
