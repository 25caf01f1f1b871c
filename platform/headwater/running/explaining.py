"""Why a job is where it is: which input it waits for or lags behind, which step takes the time, who holds the
watermark back. From `headwater.progress`, the ledger and the brokers; no Spark is needed."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.errors import UsageError
from headwater.running.behind import AskTopic, bounds_of, records_behind
from headwater.running.progress import JobProgress, progress_of, without_left_over
from headwater_streams.base.durations import parse_duration
from headwater_streams.base.extra import Extra
from headwater_streams.base.layout import KEPT
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.base.target import declared_name
from headwater_streams.base.topics import bare_topic
from headwater_streams.ledger.expired import is_expiry
from headwater_streams.ledger.log import commits, commits_backwards, last_entry
from headwater_streams.spark.run_facts import facts_of_last_run
from headwater_streams.storage.delta_files import properties_of
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.home import Home

_STEPS = {
    "latestOffset": "asking the inputs what is new",
    "getBatch": "listing what is new",
    "queryPlanning": "planning the batch",
    "addBatch": "reading, computing and committing the batch",
    "walCommit": "writing the checkpoint",
    "commitOffsets": "writing the checkpoint",
    "commitBatch": "writing the checkpoint",
}
_ENDED = {"killed": "was killed", "waiting": "waits", "refused": "was refused", "blocked": "does not run"}
"""How messages describe a part's state, where that is not the state's name."""
_SILENT = timedelta(seconds=30)
_LOOKED_BACK = 1_000  # commits of a table, for its last expiry
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class InputState:
    """How a job stands with one input.

    Attributes:
        input: The parameter.
        source: `"topic clicks"`, `"topics east, west"` or `"table silver.clicks"`.
        behind: Records of a topic, or commits of a table, that wait to be read; None if that is unknown.
        places: Of topics, the partitions that are behind, most first, as "clicks 0".
        newest_event: The greatest event time read of it, if it feeds state.
        holds_until: `newest_event` less the delay: how far this input alone would let the watermark go.
        is_silent: Whether no event was read of it yet, so that a join has no watermark.
    """

    input: str
    source: str
    behind: int | None
    places: dict[str, int]
    newest_event: datetime | None
    holds_until: datetime | None
    is_silent: bool = False


@dataclass(frozen=True)
class Explanation:
    """Why a job is where it is."""

    job: str
    state: str
    watermark: datetime | None
    inputs: list[InputState]
    steps_ms: dict[str, int]
    sentences: list[str]


def explain_job(home: Path, job: str, ask: AskTopic | None, *, now: datetime | None = None) -> Explanation:
    """Explains a job.

    Args:
        home: The home.
        job: The job's name.
        ask: Asks the brokers; None if none are known.
        now: The time; by default the clock's.

    Raises:
        UsageError: No such job has run in the home; the message names those that have.
    """
    by_job = {each.job: each for each in progress_of(home)}
    if job not in by_job:
        raise UsageError(f"no job {job!r} has run in {home}; those that have: {', '.join(by_job) or 'none'}")
    progress, place = by_job[job], Home(home)
    last = progress.batches[-1] if progress.batches else None
    inputs = [*_inputs(place, progress, ask)]
    steps = Counter[str]()
    for batch in progress.batches[-20:]:
        for name, took_ms in batch["durations_ms"] or ():
            steps[_STEPS.get(name, name)] += took_ms
    sentences = [
        *_of_state(progress, inputs, now or datetime.now(UTC)),
        *_of_inputs(progress, inputs),
        *_of_steps(progress, steps),
        *_of_watermark(last, inputs),
        *_of_parts(place, by_job, job, ask),
        *_of_age(place, progress),
    ]
    watermark = last["watermark"] if last is not None else None
    return Explanation(job, progress.state, watermark, inputs, dict(steps.most_common()), sentences)


def _inputs(home: Home, progress: JobProgress, ask: AskTopic | None) -> Iterator[InputState]:
    last = progress.batches[-1] if progress.batches else None
    generation = int(progress.events[-1]["generation"])
    facts = facts_of_last_run(home.checkpoint(progress.job, generation))
    if facts is None:
        return
    entry = last_entry(home.table(next(iter(facts.targets))), progress.job, generation)
    watermarks_ms = _watermarks_ms(entry, [*facts.inputs])
    never_holds = Extra.LEFT.of(entry) if entry is not None and entry.kind == "as_of" else None
    ends = {each["input"]: each["end"] for each in (last or {}).get("sources") or ()}
    for name, declared in facts.inputs.items():
        end = json.loads(ends[name]) if ends.get(name) else {}
        behind: int | None = None
        places: dict[str, int] = {}
        newest: datetime | None = None
        if declared.kind == "topic":
            bounds = bounds_of(declared.ids, ask)
            if bounds is not None:
                # Spark knows no clusters: it calls a topic as its cluster does.
                read = {
                    topic: {int(each): at for each, at in end.get(bare_topic(topic), {}).items()}
                    for topic in bounds
                }
                waiting = records_behind(bounds, read)
                places = {f"{topic} {partition}": count for (topic, partition), count in waiting.items()}
                behind = sum(places.values())
        else:
            (source,) = declared.ids
            since = int(end.get("reservoirVersion", 0)) + (1 if end.get("index", -1) >= 0 else 0)
            behind = sum(1 for commit in commits(home.table(source), since=since) if commit.is_append)
            newest = _newest_event(home, source)
        delay = parse_duration(declared.watermark) if declared.watermark else None
        keeps_state = facts.kind not in ("row", "scd") and name != never_holds
        holds = newest - delay if newest is not None and delay is not None and keeps_state else None
        watermark_ms = watermarks_ms.get(name)
        if delay is not None and watermark_ms is not None:  # of what the job has read
            holds = _EPOCH + timedelta(milliseconds=watermark_ms)
            newest = holds + delay
        is_silent = name in watermarks_ms and watermark_ms is None
        yield InputState(
            name, declared.source, behind, places, newest, None if is_silent else holds, is_silent
        )


def _watermarks_ms(entry: LedgerEntry | None, inputs: Sequence[str]) -> Mapping[str, int | None]:
    """The watermark after the last batch of each input that a join's state depends on; None if no event was read."""
    if entry is None or entry.kind != "as_of":
        return entry.input_watermarks_ms if entry is not None else {}
    at_us = Extra.WATERMARK_US.of(entry)
    right = next(name for name in inputs if name != Extra.LEFT.of(entry))
    return {right: None if at_us is None else at_us // 1000}


def _newest_event(home: Home, table: str) -> datetime | None:
    for commit in commits_backwards(home.table(table)):
        if commit.entry is not None and commit.entry.max_event_time_us is not None:
            return datetime.fromtimestamp(commit.entry.max_event_time_us / 1e6, UTC)
    return None


def _of_state(progress: JobProgress, inputs: list[InputState], now: datetime) -> Iterator[str]:
    if progress.state == "failed":
        yield f"it failed: {progress.message}"
    elif progress.state == "refused":
        yield f"it was refused: {progress.message}"
    elif progress.state == "blocked":
        yield f"it does not run: {progress.message}; mend that one, and headwater jobs run goes on with both"
    elif progress.state == "waiting":
        yield f"it is started after a pause: {progress.message}"
    elif progress.state == "killed":
        yield "its process ended without a word; start it again, and it goes on where its table ends"
    elif progress.state == "stopped":
        yield "it is stopped; headwater jobs run goes on with it"
    else:
        last = progress.batches[-1] if progress.batches else None
        ended = progress.at  # a start counts as a batch
        if last is not None:
            ended = max(ended, last["happened_at"] + timedelta(milliseconds=last["duration_ms"] or 0))
        if progress.message:
            yield f"it {progress.message}"
        waiting = sum(each.behind or 0 for each in inputs)
        if waiting and now - ended > _SILENT:
            since = timedelta(seconds=(now - ended) // timedelta(seconds=1))
            yield f"it is stuck or in a long batch: none has ended for {since}, and its inputs have more to read"
        elif waiting:
            yield "it is running, and its inputs have more to read"
        else:
            yield "it is running and has read all there is"


def _of_inputs(progress: JobProgress, inputs: list[InputState]) -> Iterator[str]:
    for each in inputs:
        if each.behind is None:
            yield f"{each.source}: nobody could be asked how far it goes"
        elif not each.behind:
            yield f"{each.source}: all is read"
        elif each.places:
            worst, count = next(iter(each.places.items()))
            yield f"{each.source}: {quantity(each.behind, 'record waits', 'records wait')}, most in {worst} ({count:,})"
        else:
            yield f"{each.source}: {quantity(each.behind, 'commit waits', 'commits wait')}"
    behind = [batch["behind"] for batch in progress.batches[-20:] if batch["behind"] is not None]
    if len(behind) > 1 and behind[-1] > behind[0]:
        waited = quantity(behind[0], "record")
        ago = quantity(len(behind) - 1, "batch", "batches")
        yield f"it falls behind: {waited} waited {ago} ago, {behind[-1]:,} now"


def _of_steps(progress: JobProgress, steps: Counter[str]) -> Iterator[str]:
    recent = progress.batches[-20:]
    whole_ms = sum(batch["duration_ms"] or 0 for batch in recent)
    if not whole_ms:
        return
    step, took_ms = steps.most_common(1)[0]
    yield (
        f"of its last {quantity(len(recent), 'batch', 'batches')} ({whole_ms / len(recent):,.0f} ms each), "
        f"{min(1.0, took_ms / whole_ms):.0%} was {step}"
    )
    operators: Counter[str] = Counter()
    for batch in recent:
        for each in batch["operators"] or ():
            operators[each["name"]] += sum(each[f"{part}_ms"] or 0 for part in ("update", "remove", "commit"))
    if operators:
        name, took_ms = operators.most_common(1)[0]
        state = next(each for each in recent[-1]["operators"] if each["name"] == name)
        yield (
            f"the operator {name} took {took_ms:,} ms of tasks' time in them; it holds "
            f"{quantity(state['rows'] or 0, 'row')}, {quantity(state['bytes'] or 0, 'byte')}"
        )


def _of_parts(home: Home, by_job: Mapping[str, JobProgress], job: str, ask: AskTopic | None) -> Iterator[str]:
    """Why the parts before a job keep rows from it."""
    for part in without_left_over([*by_job.values()]):
        name = part.job
        if name == job or declared_name(name) != job or part.state == "stopped":
            continue
        if part.state != "running":
            what = _ENDED.get(part.state, part.state)
            yield f"its part {name} {what}" + (f": {part.message}" if part.message else "")
        for each in _inputs(home, part, ask):
            if each.behind:
                unit = "record" if each.places else "commit"
                yield f"its part {name} is behind: {quantity(each.behind, unit)} of {each.source} wait"


def _of_age(home: Home, progress: JobProgress) -> Iterator[str]:
    """How long the job's tables keep their rows, and what has expired last."""
    facts = facts_of_last_run(home.checkpoint(progress.job, int(progress.events[-1]["generation"])))
    for table in facts.targets if facts is not None else ():
        path = home.table(table)
        keep = properties_of(path).get(KEPT) if has_versions(path) else None
        if not keep:
            continue
        newest = islice((c.entry for c in commits_backwards(path) if c.entry is not None), _LOOKED_BACK)
        expiry = next((entry for entry in newest if is_expiry(entry)), None)
        if expiry is None:
            yield f"{table} keeps its rows for {keep}; none has expired lately"
            continue
        rows = quantity(expiry.totals["expired"], "row")
        before = iso(Extra.EXPIRED_BEFORE_US.of(expiry))
        yield (
            f"{table} keeps its rows for {keep}: what is before {before} has expired, {rows} of them the last time"
        )


def _of_watermark(last: dict[str, Any] | None, inputs: list[InputState]) -> Iterator[str]:
    for each in inputs:
        if each.is_silent:
            yield f"no watermark is in effect: {each.source} holds it, of which no event was seen yet"
    holding = [each for each in inputs if each.holds_until is not None]
    if not holding or any(each.is_silent for each in inputs):
        return
    in_effect = last["watermark"] if last is not None else None
    slowest = min(holding, key=lambda each: each.holds_until or datetime.max.replace(tzinfo=UTC))
    assert slowest.holds_until is not None
    if in_effect:
        sentence = f"the watermark in effect is {in_effect:%Y-%m-%d %H:%M:%S}"
        yield sentence + ("; it moves with the next batch" if slowest.holds_until > in_effect else "")
    else:
        yield "no watermark is in effect yet"
    text = (
        f"{slowest.source} lets it go to {slowest.holds_until:%Y-%m-%d %H:%M:%S}: "
        f"its newest event is of {slowest.newest_event:%Y-%m-%d %H:%M:%S}"
    )
    others = [each for each in holding if each is not slowest]
    if others:
        text += "; it holds back " + ", ".join(
            f"{each.source} ({each.holds_until:%Y-%m-%d %H:%M:%S})" for each in others
        )
    yield text
