"""The bug in the first version of gold.delay_by_carrier: shown, then mended by plan, run, verify, swap."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headwater.demo.compare import Comparison, add_up_windows, compare
from headwater.demo.home import DemoHome
from headwater.demo.live import MODULE, WINDOWED
from headwater.demo.oracle import Oracle
from headwater.demo.show import Show
from headwater.errors import UserError
from headwater.running.environment import find_jobs
from headwater_streams.backfill.repair.planning import plan
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.results import SwapResult
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.backfill.values import micros
from headwater_streams.backfill.verbs import run, swap, verify
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.base.errors import StreamsError
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext

TABLE = "gold.delay_by_carrier"
_LATE = f"{TABLE}__late"


@dataclass
class Mended:
    """The backfill and its outcome.

    Attributes:
        plan: The plan, as it is stored.
        verdict: The verdict, as it is stored.
        late_rows: How many departures came after their window had closed.
        differences: What is not as it should be, each as a sentence.
    """

    plan: dict[str, Any]
    verdict: dict[str, Any] = field(default_factory=dict)
    late_rows: int = 0
    differences: list[str] = field(default_factory=list)


def mend(context: StageContext, home: DemoHome, oracle: Oracle, show: Show) -> Mended:
    """Mend the table, or find that it was mended before.

    Args:
        context: The session, the home's tables, the brokers.
        home: The demo's home, which remembers the backfill.
        oracle: What the CSV says.
        show: Shows how it goes.

    Raises:
        UserError: A step of the backfill was refused.
    """
    (job,) = find_jobs([f"{MODULE}:{WINDOWED}"])
    try:
        planned = _planned(context, home, job)
        mended = Mended(planned.to_json())
        wrong = _look_at_first_version(context, planned, oracle, mended, show)
        folder = BackfillFolder(context.home, planned.id)
        if folder.read(SwapResult) is None:
            done = run(context, planned.id, job)
            show.say(f"run: {done.rows_read:,} rows read again into a shadow of {TABLE}")
            verify(context, planned.id, job)
        verdict = folder.read(Verdict)
        mended.verdict = {} if verdict is None else verdict.to_json()
        _look_at_verdict(mended, wrong, show)
        if mended.verdict["passed"]:
            swapped = swap(context, planned.id)
            show.say(
                f"swap: version {swapped['version']} of {TABLE} is one commit, no row outside it changed"
            )
    except StreamsError as error:
        raise UserError(f"the backfill of {TABLE}: {error}") from error
    return mended


def _planned(context: StageContext, home: DemoHome, job: Job) -> BackfillPlan:
    remembered = home.folder / "backfill"
    if remembered.exists():
        stored = BackfillFolder(context.home, remembered.read_text()).plan()
        assert isinstance(stored, BackfillPlan), "the demo repairs"
        return stored
    planned = plan(context, job, reference=f"{MODULE}:{WINDOWED}")
    remembered.write_text(planned.id)
    return planned


def _look_at_first_version(
    context: StageContext, planned: BackfillPlan, oracle: Oracle, mended: Mended, show: Show
) -> Comparison:
    """Check that the table is wrong in just the rows in which it must be, late rows included."""
    live, late = context.home.table(TABLE), context.home.table(_LATE)
    sums = add_up_windows(oracle, live, late, planned.base_version)
    first = compare(oracle, TABLE, live, planned.base_version)
    mended.late_rows = sums.late_rows
    cut = oracle.windows_the_first_version_gets_wrong()
    show.say(
        f"before: {len(first.differing):,} of {first.expected:,} windows differ from the CSV, {len(cut):,} for cut "
        f"delays, {len(sums.late_windows):,} for {sums.late_rows:,} late rows"
    )
    show.say(f"plan {planned.id}: {planned.rows:,} rows from {_ranges_text(planned)}")
    if sums.wrong:
        mended.differences.append(_sentence("windows and late rows do not make the CSV's count", sums.wrong))
    _compare_prediction(first, cut | sums.late_windows, planned, mended)
    return first


def _compare_prediction(
    first: Comparison,
    predicted: frozenset[tuple[str, str]],
    planned: BackfillPlan,
    mended: Mended,
) -> None:
    if first.schema:
        mended.differences.append(f"before the backfill, {first.schema}")
    if more := sorted(first.differing - predicted):
        mended.differences.append(_sentence("before the backfill, windows differ that should not", more))
    if fewer := sorted(predicted - first.differing):
        mended.differences.append(
            _sentence("before the backfill, windows are right that should not be", fewer)
        )
    outside = sorted(key for key in first.differing if not _is_planned(planned, key[1]))
    if outside:
        mended.differences.append(_sentence("the plan does not hold windows that differ", outside))


def _look_at_verdict(mended: Mended, before: Comparison, show: Show) -> None:
    verdict = mended.verdict
    diff = verdict["diff"]
    changes = diff["added"] + diff["removed"] + diff["changed"]
    passed = sum(finding["ok"] for finding in verdict["findings"])
    show.say(f"verify: {passed} of {len(verdict['findings'])} findings hold, {changes:,} rows change")
    mended.differences += [
        f"the backfill's {finding['name']}: {finding['detail']}"
        for finding in verdict["findings"]
        if not finding["ok"]
    ]
    if changes != len(before.differing):
        mended.differences.append(
            f"the backfill changes {changes} rows, but {len(before.differing)} differ from the CSV"
        )


def _is_planned(planned: BackfillPlan, window_start: str) -> bool:
    start_us = micros(datetime.fromisoformat(window_start).replace(tzinfo=UTC))
    return any(start <= start_us < end for start, end in planned.windows)


def _ranges_text(planned: BackfillPlan) -> str:
    return ", ".join(
        f"{topic}-{partition} [{start:,}, {end:,})"
        for topic, partitions in sorted(planned.ranges.items())
        for partition, (start, end) in sorted(partitions.items())
    )


def _sentence(what: str, keys: Sequence[tuple[str, ...]]) -> str:
    some = ", ".join("/".join(key) for key in keys[:3])
    return f"{TABLE}: {what}: {len(keys)} ({some}{', ...' if len(keys) > 3 else ''})"
