"""What the checks that reject rows came to: counted in the files of the quarantine, which a batch without rejected rows
does not write, so that nothing is counted in the pass itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.check import Check
from headwater_streams.quality.check_result import MOST_SAMPLED, CheckResult, of_rows
from headwater_streams.quality.rejected import CHECK, names_in
from headwater_streams.sources.coordinates import BATCH, GENERATION, OFFSET, PARTITION, TOPIC
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import data_files, dataset_of

_COLUMNS = [CHECK, TOPIC, PARTITION, OFFSET]
_SCHEMA = pa.schema(
    [(CHECK, pa.string()), (TOPIC, pa.string()), (PARTITION, pa.int32()), (OFFSET, pa.int64())]
)


@dataclass(frozen=True)
class Rejections:
    """The rejected rows of a batch.

    Attributes:
        counts: How many rows each check rejected; a row counts for each of its reasons.
        samples: Some of these, `TOPIC:PARTITION:OFFSET`.
        rows: How many rows were rejected, for whatever reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=dict)
    rows: int = 0

    @classmethod
    def of(cls, rows: pa.Table) -> "Rejections":
        """Those of rows of a quarantine table."""
        counts, samples = Counter[str](), dict[str, list[str]]()
        texts = rows[CHECK].combine_chunks().dictionary_encode()
        for number, text in enumerate(texts.dictionary.to_pylist()):
            # Few combinations of checks reject most rows: each is looked at once, however many rows it has.
            mine = pc.indices_nonzero(pc.equal(texts.indices, number))
            places = rows.take(mine.slice(0, MOST_SAMPLED)).to_pylist()
            for name in names_in(text):
                counts[name] += len(mine)
                samples.setdefault(name, []).extend(
                    f"{row[TOPIC]}:{row[PARTITION]}:{row[OFFSET]}" for row in places
                )
        return cls(counts, {name: found[:MOST_SAMPLED] for name, found in samples.items()}, rows.num_rows)

    def results(self, checks: Sequence[Check], judged: int) -> list[tuple[Check, CheckResult]]:
        """What each check came to.

        Args:
            checks: Those that reject rows.
            judged: How many rows they judged.
        """
        return [
            (
                check,
                of_rows(
                    check,
                    judged=judged,
                    failed=self.counts[check.name],
                    sample=self.samples.get(check.name, ()),
                ),
            )
            for check in checks
        ]


def in_files(folder: Path, files: Sequence[str]) -> Rejections:
    """The rejected rows of some data files, which need not be committed."""
    if not files:
        return Rejections()
    return Rejections.of(data_files([folder / name for name in files], _SCHEMA).to_table())


def in_backfill(folder: Path, checks: Sequence[Check], judged: int) -> list[CheckResult]:
    """What the checks came to that rejected rows of a backfill, whose rejected rows stand in a table of their own.

    A bound says how many may fail of a batch, and nothing of the rows that are made again: a replay of rejected records
    is mostly of such.
    """
    rejections = Rejections()
    if has_versions(folder):
        rejections = Rejections.of(dataset_of(folder).to_table(columns=_COLUMNS))
    return [
        replace(result, outcome="within" if result.failed else "held", action=check.action)
        for check, result in rejections.results(checks, judged)
    ]


def of_batch(folder: Path, generation: int, batch: int, topics: Sequence[str] | None = None) -> Rejections:
    """The rejected rows of a batch whose quarantine was committed before the driver died.

    Args:
        folder: The folder of the quarantine.
        generation: The job's generation.
        batch: The batch.
        topics: The topics of the input that is meant; None for all inputs.
    """
    mine = (pc.field(BATCH) == batch) & (pc.field(GENERATION) == generation)
    if topics is not None:
        mine &= pc.field(TOPIC).isin(list(topics))
    return Rejections.of(dataset_of(folder).to_table(columns=_COLUMNS, filter=mine))
