"""How `headwater backfill run` and `resume` run a backfill: out of the way of live jobs, with a bar."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.cli._backfill_job import errors, home_of, planned_job
from headwater.cli._common import print_json, print_line, progress_console
from headwater_streams.base.plural import quantity


def run_planned(home: Path, bootstrap: str | None, backfill_id: str, json_output: bool, nice: int) -> None:
    """Runs the remaining steps of a backfill, with a bar, and prints how far it came and what is next."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if _report_nothing_to_run(home, backfill_id, json_output):
        return
    with (
        hint_on_interrupt(backfill_id),
        planned_job(home, bootstrap, backfill_id, nice=nice) as (context, job),
    ):
        from headwater_streams import backfill

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not sys.stderr.isatty()  # where it would leave an empty line
        with Progress(*columns, console=progress_console(), transient=True, disable=hidden) as bar:
            steps = bar.add_task(backfill_id, total=None)

            def show(progress: "backfill.Progress") -> None:
                rate = f"{quantity(progress.rows_read, 'row')}, {progress.rows_per_second:,.0f}/s"
                bar.update(steps, completed=progress.chunks_done, total=progress.chunks, description=rate)

            done = backfill.run(context, backfill_id, job, on_progress=show)
    if json_output:
        print_json(done.to_json())
        return
    in_all, rows = quantity(done.chunks, "step"), quantity(done.rows_read, "row")
    following = "resume" if done.state == "paused" else "verify"
    print_line(
        f"{done.state}: {done.chunks_done} of {in_all}, {rows} read; next: headwater backfill {following} {backfill_id}"
    )


@contextmanager
def hint_on_interrupt(backfill_id: str) -> Iterator[None]:
    """Names, after a Ctrl-C in the block, the command that goes on with the backfill."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"headwater: stopped; what is left: headwater backfill run {backfill_id}", file=sys.stderr)
        raise


def _report_nothing_to_run(home: Path, backfill_id: str, json_output: bool) -> bool:
    """Prints that a rewind has nothing to run; False for any other backfill."""
    from headwater_streams.backfill import RewindPlan, status
    from headwater_streams.backfill.progress import nothing_to_run
    from headwater_streams.backfill.store import BackfillFolder

    with errors():
        folder = BackfillFolder(home_of(home), backfill_id)
        planned = folder.plan()
        if not isinstance(planned, RewindPlan):
            return False
        folder.require_open()
        state = status(home_of(home), backfill_id)["state"]
    if json_output:
        print_json(nothing_to_run(planned).to_json())
        return True
    following = {"done": "verify", "failed": "verify", "verified": "swap"}.get(state)
    then = f"next: headwater backfill {following} {backfill_id}" if following else f"it is {state}"
    print_line(f"a rewind has nothing to run, for the rows and the state that it puts back are there; {then}")
    return True
