"""Fills the facts that the repair of a row job is planned by: from the topics, the tables and the look-ups."""

from dataclasses import replace

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import in_span, offsets_of, row_input
from headwater_streams.backfill.repair.pinning import pin_told_apart
from headwater_streams.backfill.repair.rejected import rejected_records
from headwater_streams.backfill.repair.rows.planning import LostLookup, RowFacts, RowRange, range_of
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.values import Span
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.delta.delta_table import read_version
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.lookups import Lookups, LookupVersion
from headwater_streams.spark.columns import col

_NO_END = 2**63 - 1


def row_facts(
    context: StageContext,
    part: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    *,
    newest_lookups: bool,
) -> RowFacts | Refusal:
    """What the repair of a row job follows from; with `newest_lookups` its look-ups are read as they are now."""
    ((name, declared),) = part.job.inputs.items()
    pinned = pin_told_apart(context, part.job, history, name) if part.job.tables else None
    if isinstance(pinned, Refusal):
        return pinned
    read = history.read_ranges()
    times = selection.timestamps is not None or selection.event_time is not None
    topics = dict.fromkeys([*part.job.topic_names, *(read if times and pinned is None else ())])
    facts = RowFacts(
        draft=draft,
        part=part,
        selection=selection,
        history=history,
        pinned=pinned,
        # A topic is asked for each of its partitions, so once.
        held={topic: context.source.partitions(topic) for topic in topics},
        newest_lookups=newest_lookups,
    )
    if selection.rows == "quarantined":
        # Up to any offset, as the range is cut to what was read.
        held = {
            topic: {partition: (first, _NO_END) for partition, (first, _) in facts.held[topic].items()}
            for topic in part.job.topic_names
        }
        facts = replace(facts, rejected=rejected_records(context, part, held or read, history.made_again))
    elif selection.since_version is None:
        facts = replace(
            facts, named=offsets_of(row_input(context, declared, pinned), declared, selection, read)
        )
    if facts.times is not None and facts.gone:
        facts = replace(facts, made_of_gone=_made_of(context, part, history, facts.gone, facts.times))
    found = range_of(facts)
    return facts if isinstance(found, Refusal) else _with_lookups(context, facts, found)


def _made_of(
    context: StageContext, part: JobPlan, history: TableHistory, gone: Ranges, times: tuple[Span, str]
) -> dict[str, bool | None]:
    """Whether each table of a job has rows of some times that were made of some offsets; None without that time."""
    span, time = times
    found: dict[str, bool | None] = {}
    for table in (part.job.target.name, *part.job.other_tables):
        path = context.home.table(table)
        version = history.version if table == part.job.target.name else read_history(path, table).version
        rows = read_version(context.spark, path, version).filter(Offsets.of([gone]).condition())
        is_time = dict(rows.dtypes).get(time) == "timestamp"
        found[table] = not rows.filter(in_span(col(time), span)).isEmpty() if is_time else None
    return found


def _with_lookups(context: StageContext, facts: RowFacts, found: RowRange) -> RowFacts:
    """The facts with the versions of the look-ups that there are, and with one that a batch read and that is not."""
    lookups = Lookups(context, facts.part)
    facts = replace(facts, lookups=lookups.newest().versions)
    names = found.pinned_lookups(facts.part, newest=facts.newest_lookups)
    pinned = {name: facts.lookups[name] for name in names}
    read_by: dict[tuple[tuple[str, LookupVersion], ...], int] = {}
    for batch, _ in found.batches:
        versions = {name: v for name, v in batch.lookups.items() if name in facts.part.lookups} | pinned
        read_by.setdefault(tuple(sorted(versions.items(), key=str)), batch.id.batch)
    for read, first in read_by.items():
        try:
            lookups.require(dict(read))
        except DataLossError as error:
            return replace(facts, lost=LostLookup(why=str(error), batch=first))
    return facts
