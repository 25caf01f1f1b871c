"""A load into a table: chunks of records, each read as a batch of Spark and committed by the job's row stage."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, summed_terms
from headwater_streams.delta.marks import last_batch
from headwater_streams.ledger.log import commits, writer_of
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.loading.begun import BegunLoad, begun_load, remember_begun
from headwater_streams.runtime.loading.planning import Chunk, LoadRefusedError, Partitions
from headwater_streams.runtime.stages.row import RowStage
from headwater_streams.runtime.tables import require_tables
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.topic_metadata import changed_ids
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import table_id

_ANY = "any"
GENERATION = 1
"""A load has one: to load with other code is another load, into another table."""


@dataclass(frozen=True, kw_only=True)
class LoadProgress:
    """What a load has done after a chunk.

    Attributes:
        chunk: The chunk's number, from 1 on, of those of this run.
        chunks: How many these are.
        read: The records that were read in this run.
        size_bytes: About how many bytes these were.
    """

    chunk: int
    chunks: int
    read: int
    size_bytes: int


def load_job(job: Job, topic: str, table: str) -> Job:
    """The job that loads a topic into a table as a job would: its function, checks and decoding, under a name of its
    own.

    Raises:
        LoadRefusedError: The job does not read the topic alone.
    """
    ((name, declared), *others) = job.inputs.items()
    if others or not isinstance(declared, TopicInput) or topic not in declared.names:
        inputs = ", ".join(
            " and ".join(i.names) if isinstance(i, TopicInput) else i.name for i in job.inputs.values()
        )
        raise LoadRefusedError(
            f"job {job.name!r} reads {inputs}: a load needs a job with one input, and {topic} among its topics"
        )
    if job.branches:
        raise LoadRefusedError(f"job {job.name!r} writes several tables, and a load writes one")
    return replace(
        job,
        name=f"load-{table}",
        inputs={name: replace(declared, name=topic, more=())},
        target=replace(job.target, name=table, sides_of=None),
    )


class TableLoad:
    """Loads chunks of a topic into a table."""

    def __init__(self, context: StageContext, plan: JobPlan) -> None:
        """A load of a job that `load_job` gave.

        Raises:
            LoadRefusedError: The job keeps state, another job writes the table, or the rows that it has are of other
                code or of another topic of that name.
            IncompatibleTableError: The table cannot hold the rows.
        """
        if plan.kind != "row":
            raise LoadRefusedError(
                f"{plan.job.function.__name__} keeps state, and a load looks at each record alone: run the job, or "
                "make its table anew with headwater backfill plan JOB --rebuild"
            )
        self._context, self._job = context, plan.job
        ((self._name, declared),) = plan.job.inputs.items()
        assert isinstance(declared, TopicInput)
        self._topic = declared.name
        self._path = context.home.table(plan.job.target.name)
        writer = writer_of(self._path)
        if writer not in (None, plan.job.name):
            raise LoadRefusedError(
                f"table {plan.job.target.name} is written by job {writer!r}: load into a table of its own"
            )
        require_tables(context, plan)
        self._stage = RowStage(context, plan, GENERATION)
        self._code, self._topic_id = _code_of(plan.job), context.source.topic_id(self._topic)
        self._begun = self._still_begun()
        if self._begun is not None:
            self._require_same(self._begun)

    def _still_begun(self) -> BegunLoad | None:
        """What was begun of the table as it is now; None where nothing of that was committed."""
        target = self._job.target
        begun = begun_load(self._context.home, self._job.name)
        is_of_table = begun is not None and has_versions(self._path) and begun.table == table_id(self._path)
        rejected = self._context.home.table(target.quarantine_table)
        has_rejected = has_versions(rejected) and last_batch(rejected, self._job.app_id(GENERATION)) >= 0
        if has_rejected and self._last_batch() < 0 and not is_of_table:
            raise LoadRefusedError(
                f"{target.quarantine_table} has the rejected records of an earlier load into {target.name}, which was "
                "removed: remove that table, too, or load into another one"
            )
        return begun if is_of_table and (has_rejected or self._last_batch() >= 0) else None

    def _require_same(self, begun: BegunLoad) -> None:
        table = self._job.target.name
        if begun.code != self._code:
            raise LoadRefusedError(
                f"the function or the declaration of the job was changed since {table} was begun, and its rows would "
                "be of both; put it back, or load into another table"
            )
        if changed_ids(begun.topics, {self._topic: self._topic_id}):
            raise LoadRefusedError(
                f"the topic {self._topic} was deleted and made again since {table} was begun, and its rows would be of "
                "both; load into another table"
            )
        others = ", ".join(topic for topic in begun.ranges if topic != self._topic)
        if others and begun.batch > self._last_batch():
            raise LoadRefusedError(
                f"a load of {others} into {table} was cut off; run it to its end before that of {self._topic}"
            )

    def _last_batch(self) -> int:
        return max((entry.batch for entry in self._entries()), default=-1)

    def cut_off(self) -> Partitions:
        """The offsets of a chunk that was begun and not committed: of its rejected records, some may be committed, so
        it is read again as it was, whatever is asked for now."""
        if self._begun is None or self._begun.batch <= self._last_batch():
            return {}
        return self._begun.ranges[self._topic]

    def done(self) -> list[Partitions]:
        """The offsets of the commits that the table has."""
        return [source.ranges.get(self._topic, {}) for entry in self._entries() for source in entry.sources]

    def accounting(self) -> dict[str, int]:
        """What became of all records that were loaded, without terms that are 0."""
        return {term: number for term, number in summed_terms([*self._entries()]).items() if number}

    def run(self, chunks: list[Chunk], report: Callable[[LoadProgress], None]) -> None:
        """Reads and commits chunks, each once.

        Args:
            chunks: The chunks, in order; the first one is that of `cut_off`, where there is one.
            report: Called after each commit.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold; the chunk is not committed.
            DataLossError: Records are gone meanwhile.
        """
        self._stage.prepare()
        batch, read, size_bytes = 1 + self._last_batch(), 0, 0
        table = table_id(self._path)
        topics = {**(self._begun.topics if self._begun is not None else {}), self._topic: self._topic_id}
        for number, chunk in enumerate(chunks, 1):
            records = self._context.source.read(
                self._context.spark, self._topic, chunk.ranges, most_records=chunk.records_a_task
            )
            source = SourceRange(input=self._name, topic=self._topic, ranges={self._topic: chunk.ranges})
            begun = BegunLoad(table=table, code=self._code, topics=topics, batch=batch, ranges=source.ranges)
            remember_begun(self._context.home, self._job.name, begun)
            result = BatchResult(records, dict)
            try:
                self._stage.run_batch(result, batch, {self._name: BatchInput(source)})
            finally:
                result.release()
            batch, read, size_bytes = batch + 1, read + chunk.offsets, size_bytes + chunk.size_bytes
            report(LoadProgress(chunk=number, chunks=len(chunks), read=read, size_bytes=size_bytes))

    def _entries(self) -> Iterator[LedgerEntry]:
        for commit in commits(self._path):
            if commit.entry is not None and commit.entry.is_batch and commit.entry.job == self._job.name:
                yield commit.entry


def _code_of(job: Job) -> str:
    """A digest of what decides a load's rows, but the topic: a table may be loaded from one after the other."""
    ((name, declared),) = job.inputs.items()
    assert isinstance(declared, TopicInput)
    return replace(job, inputs={name: replace(declared, name=_ANY)}).fingerprint
