"""Plans a repair: from the range that was asked for to offsets, windows, chunks and pinned versions.

Facts are filled, and then all is decided by them, without a session, files or a clock:

    what is asked                facts of                        decided in
    the job: which part, tables  job_facts                       draft
    rows                         rows.facts                      rows.planning
    windows of fixed times       windows.fixed.facts             windows.fixed.planning
    sessions                     windows.sessions.facts          windows.sessions.planning
    joins                        joins.facts                     joins.planning
"""

from typing import Literal

from headwater_streams.backfill.expired import expired_facts, without_expired
from headwater_streams.backfill.refusal import Refusal, accepted
from headwater_streams.backfill.repair.draft import JobFacts, draft_of
from headwater_streams.backfill.repair.job_facts import job_facts
from headwater_streams.backfill.repair.joins.facts import join_facts
from headwater_streams.backfill.repair.joins.planning import plan_join
from headwater_streams.backfill.repair.rows.facts import row_facts
from headwater_streams.backfill.repair.rows.planning import plan_rows
from headwater_streams.backfill.repair.selection import Moment, Rows, Selection
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.windows.fixed.facts import fixed_facts
from headwater_streams.backfill.repair.windows.fixed.planning import plan_fixed
from headwater_streams.backfill.repair.windows.sessions.facts import session_facts
from headwater_streams.backfill.repair.windows.sessions.planning import plan_sessions
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext

_ROWS_PER_CHUNK = {"row": 1_000_000, "window": 10_000_000, "join": 10_000_000}


def plan(
    context: StageContext,
    job: Job,
    *,
    offsets: Ranges | None = None,
    timestamps: tuple[Moment, Moment] | None = None,
    event_time: tuple[Moment, Moment] | None = None,
    since_version: int | None = None,
    rows: Rows | None = None,
    reference: str = "",
    rows_per_chunk: int | None = None,
    lookups: Literal["as_read", "newest"] = "as_read",
    dry_run: bool = False,
) -> BackfillPlan:
    """Plans the repair of a range and stores the plan; the same range, code and tables give the same plan.

    Every range is half-open. Without one, all that the live job has read is meant.

    Args:
        context: The session, the home, the record source.
        job: The job, as its code is now.
        offsets: Topic -> partition -> (start, end).
        timestamps: (start, end) of the records' timestamps. For a row-by-row job they become offsets as Kafka's tools
            tell them: from each partition's first record that is not before the start to the first not before the end;
            of one that reads a table from the first to the last of its rows that has such a timestamp.
        event_time: (start, end) of the input's event-time column, of a join the left one's, and right rows alone up to
            the join's `within` later; of a windowed job all windows that hold any of it.
        since_version: What the job committed after this version of its target.
        rows: `"quarantined"`, the records in quarantine, with what lies between the first and the last of a partition;
            of a stateful job that names a topic they are mended in its ingest table, and then in its own (`feeds`). Of
            a job of windows or a join of which no such record is left, or that reads tables, the windows or left rows
            that rows in quarantine belong to, as those for which its function raised.
            `"late"`, of a windowed job, the windows that late rows belong to and no repair has folded them into, and
            sessions that are one and were written apart, as rows that came in time touch what was written; of a join
            the late left rows, the left rows of the times at which late right ones may be their partners, and these,
            where they are written alone.
        reference: Where the job was loaded from; the command line loads it from there again.
        rows_per_chunk: About how many rows are read in one step of the run; by default a million records of a topic,
            ten million rows of a window's input, which take as long to fold, or of a join's left one.
        lookups: `"as_read"` reads look-ups at the versions that the live batches read, `"newest"` as they are now.
        dry_run: Only plans: what cannot be planned is refused as ever, and a plan is not stored, and has no id.

    Returns:
        The plan, as it stands in `<home>/backfills/<id>/plan.json`.

    Raises:
        NothingToRepairError: No row is late, or none in quarantine, where these are meant.
        BackfillError: Nothing is in the range, the job or the range cannot be repaired, the job is a chain of
            operators, or the rows that it unites were united by other code.
        DataLossError: Records of the range are gone from the topic.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    selection = Selection.of(offsets, timestamps, event_time, since_version, rows)
    if lookups not in ("as_read", "newest"):
        raise BackfillError(f"lookups={lookups!r} is neither 'as_read' nor 'newest'")
    newest = lookups == "newest"
    facts = accepted(job_facts(context, job, selection))
    draft = accepted(draft_of(facts, selection, newest_lookups=newest, reference=reference))
    size = rows_per_chunk or _ROWS_PER_CHUNK[draft.kind]
    made = accepted(_planned(context, facts, selection, draft, size, newest_lookups=newest))
    made = accepted(without_expired(made, expired_facts(context, facts.part, made)))
    return made if dry_run else stored(context.home, made, context.now_ms())


def _planned(
    context: StageContext,
    job: JobFacts,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
    *,
    newest_lookups: bool,
) -> BackfillPlan | Refusal:
    """The plan with its range.

    Raises:
        StreamsError: The facts cannot be filled.
    """
    part, history = job.part, job.history
    assert history is not None, "the draft is of a table"
    if isinstance(part.operator, SessionWindow):
        return plan_sessions(
            accepted(session_facts(context, part, history, selection, draft, rows_per_chunk))
        )
    if draft.kind == "window":
        return plan_fixed(accepted(fixed_facts(context, part, history, selection, draft)), rows_per_chunk)
    if draft.kind == "join":
        return plan_join(accepted(join_facts(context, part, history, selection, draft)), rows_per_chunk)
    rows = row_facts(context, part, history, selection, draft, newest_lookups=newest_lookups)
    return plan_rows(accepted(rows), rows_per_chunk)
