"""How far the jobs of a home are, from their tables' ledger entries; no Spark is needed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater.running.behind import AskTopic, bounds_of, records_behind
from headwater.running.progress import JobProgress
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, summed_terms
from headwater_streams.ledger.log import Commit, commits, lineage, next_commit
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.home import Home

Report = Callable[[DamagedFileError], None]


def _pass_over(damaged: DamagedFileError) -> None:
    """Ignores it: whoever reads the table gets the error."""


def job_status(home: Path, ask: AskTopic | None, damaged: Report = _pass_over) -> list[dict[str, Any]]:
    """One object for each table that a job has committed to; of a job with several, the first comes first.

    Args:
        home: The home.
        ask: Asks the brokers; where there are none, or a topic is gone, the lag is None.
        damaged: Takes the error of each table whose log cannot be read, and which is left out.

    Returns:
        `{job, target, beside, generation, batch, committed_at, read, lag, totals}`; `read` and `totals` are of the
        current generation, `lag` is in records over all topics that the job's rows come from. In the other tables of a
        job with several, `beside` names the first: the records that they read are the same.
    """
    return sorted(
        (_status(table, batches, ask) for table, batches in _committed(home, damaged=damaged)),
        key=lambda status: (str(status["job"]), status["beside"] is not None),
    )


def with_states(statuses: Sequence[dict[str, Any]], progress: Sequence[JobProgress]) -> list[dict[str, Any]]:
    """The objects of `job_status` with `state` and `message`, see `JobProgress`; jobs that have committed nothing and
    ended badly, or wait, come after them, with None where there is nothing to tell."""
    states = {each.job: each for each in progress}
    objects = [
        each
        | {
            "state": states[each["job"]].state if each["job"] in states else None,
            "message": states[each["job"]].message if each["job"] in states else None,
        }
        for each in statuses
    ]
    committed = {each["job"] for each in statuses}
    for each in progress:
        if each.job not in committed and (each.is_ended_badly or each.state == "waiting"):
            nothing = dict.fromkeys(("beside", "generation", "batch", "committed_at", "lag"))
            objects.append(
                {"job": each.job, "target": each.table, **nothing, "read": 0, "totals": {}}
                | {"state": each.state, "message": each.message}
            )
    return objects


def log_ends(home: Path) -> dict[str, int]:
    """The version that each table's next commit will be."""
    ends = {}
    for table in Home(home).tables():
        with suppress(DamagedFileError):  # whoever reads it gets the error
            ends[table] = next_commit(Home(home).table(table))
    return ends


def accounts_since(home: Path, ends: Mapping[str, int]) -> dict[str, dict[str, Counter[str]]]:
    """What became of the rows that each job read since `log_ends`: by table, the first of several first, and by term,
    including `read`."""
    entries = [
        (table, commit.entry)
        for table, commits_of_it in _committed(home, ends)
        for commit in commits_of_it
        if commit.entry is not None
    ]
    by_table: dict[str, dict[str, list[LedgerEntry]]] = {}
    for table, entry in sorted(entries, key=lambda each: Extra.BESIDE.is_in(each[1])):
        by_table.setdefault(entry.job, {}).setdefault(table, []).append(entry)
    return {
        job: {table: summed_terms(of_table) for table, of_table in tables.items()}
        for job, tables in by_table.items()
    }


def _committed(
    home: Path, since: Mapping[str, int] | None = None, *, damaged: Report = _pass_over
) -> Iterator[tuple[str, list[Commit]]]:
    for table in Home(home).tables():
        path = Home(home).table(table)
        try:
            log = lineage(path) if since is None else commits(path, since=since.get(table, 0))
            batches = [c for c in log if c.entry is not None and c.entry.is_batch]
        except DamagedFileError as error:
            damaged(error)
            continue
        if batches:
            yield table, batches


def _status(table: str, batches: list[Commit], ask: AskTopic | None) -> dict[str, Any]:
    last = batches[-1]
    assert last.entry is not None
    mine = [commit.entry for commit in batches if commit.entry is not None]
    mine = [entry for entry in mine if entry.generation == last.entry.generation]
    totals = summed_terms(mine)
    ends: dict[str, dict[int, int]] = {}
    for entry in mine:
        for source in entry.sources:
            for topic, partitions in source.ranges.items():
                at = ends.setdefault(topic, {})
                at |= {each: max(end, at.get(each, 0)) for each, (_, end) in partitions.items()}
    read = totals.pop("read", 0)
    bounds = bounds_of(ends, ask)
    moment = datetime.fromtimestamp(last.timestamp_ms / 1000, UTC)
    return {
        "job": last.entry.job,
        "target": table,
        "beside": Extra.BESIDE.get(last.entry),
        "generation": last.entry.generation,
        "batch": last.entry.batch,
        "committed_at": moment.strftime("%Y-%m-%d %H:%M:%S"),
        "read": read,
        "lag": None if bounds is None else sum(records_behind(bounds, ends).values()),
        "totals": dict(totals),
    }
