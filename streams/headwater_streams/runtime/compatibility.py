"""Whether a job can go on from its checkpoint: what differs from its last run, and what can be done about it.

Spark compares the types of its state and nothing else. A sum over another column, another watermark or another table
behind the same checkpoint is accepted in silence; what is not accepted ends in a stack trace.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from pyspark.sql import types as T

from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import IncompatibleStateError, SourceReplacedError
from headwater_streams.base.extra import Extra
from headwater_streams.base.target import declared_name
from headwater_streams.delta.declared_table import column_problems
from headwater_streams.ledger.log import last_entry, next_commit
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.facts import facts_of
from headwater_streams.runtime.generations import (
    STATELESS,
    current_generation,
    ids_read,
    mends_checkpoint,
    why_not_renewed,
)
from headwater_streams.runtime.inputs import InputReader
from headwater_streams.sources.inputs import TableInput, TopicInput
from headwater_streams.sources.registered import Registered
from headwater_streams.sources.topic_metadata import changed_ids
from headwater_streams.spark.analysed_plan import aliased_columns
from headwater_streams.spark.checkpoint import first_lost, last_planned, read_offsets
from headwater_streams.spark.checkpoint_damage import checkpoint_damage
from headwater_streams.spark.run_facts import InputFacts, RunFacts, facts_of_last_run

Remedy = Literal["keep", "renew", "rebuild"]
REMEDIES: dict[Remedy, str] = {
    "keep": "go on as it is",
    "renew": "put it back, or begin a new generation that keeps the table's rows: headwater jobs renew",
    "rebuild": "put it back, or build the table again: beside the live one with headwater backfill plan JOB --rebuild, "
    "or from empty with headwater jobs rebuild",
}
"""What can be done, from the least to the most."""
_STRENGTH: tuple[Remedy, ...] = tuple(REMEDIES)
_ROWS_OF, _CHECKPOINT, _TOPIC = "the rows of ", "the checkpoint", "the topic "


@dataclass(frozen=True)
class Difference:
    """One thing that has changed since the job last ran.

    Attributes:
        what: The thing.
        before: What it was.
        now: What it is.
        remedy: What can be done.
        why: What it means for the state and the table.
    """

    what: str
    before: str
    now: str
    remedy: Remedy
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} before, {self.now} now; {self.why}"


def differences(
    context: StageContext, plan: JobPlan, generation: int, *, with_state: bool = False
) -> list[Difference]:
    """What differs between a job and the last run of a generation of it; before the first, the topics that are not
    those that it was begun on.

    Args:
        context: The session, the home, the record source.
        plan: The job.
        generation: The generation.
        with_state: Whether to read all of Spark's state, for a file that is damaged.
    """
    checkpoint = context.home.checkpoint(plan.job.name, generation)
    damaged = checkpoint_damage(checkpoint, with_state=with_state)
    if damaged is not None:
        return [lost_checkpoint(plan, f"batch {last_planned(checkpoint)}", f"{damaged.path} {damaged.what}")]
    before = facts_of_last_run(checkpoint)
    if before is None:
        return recreated_topic_differences(context, plan, generation)
    now = facts_of(context, plan)
    subjects = {
        name: each.format.subject
        for name, each in plan.job.inputs.items()
        if isinstance(each, TopicInput) and isinstance(each.format, Registered)
    }
    compared = compare(before, now, renewable=why_not_renewed(plan) is None)
    compared += newer_schemas(before, now, subjects)
    refused = _refused_columns(context, plan)
    compared = [each for each in compared if each.what not in refused]
    return [*compared, *_replaced(context, plan, checkpoint)]


def _refused_columns(context: StageContext, plan: JobPlan) -> set[str]:
    """What those differences are about that the job's table cannot hold; `table_problems` says what to do."""
    table, name = context.home.table(plan.job.target.name), plan.job.target.name
    each = [T.StructType([field]) for field in plan.target_schema.fields]
    return {_column(schema.fieldNames()[0]) for schema in each if column_problems(table, name, schema)}


def lost_checkpoint(plan: JobPlan, before: str, now: str) -> Difference:
    """The difference of a checkpoint that is gone, in whole or in part."""
    remedy: Remedy = "renew" if mends_checkpoint(plan) else "rebuild"
    return Difference(_CHECKPOINT, before, now, remedy, "it says what the job has read, and has its state")


def since_last_run(context: StageContext, plan: JobPlan, *, with_state: bool = False) -> list[Difference]:
    """The same for the generation that the job's table is at, and whether its checkpoint is there."""
    generation = current_generation(context, plan.job)
    checkpoint = context.home.checkpoint(plan.job.name, generation)
    last = last_entry(context.home.table(plan.job.target.name), plan.job.name, generation)
    current = differences(context, plan, generation, with_state=with_state)
    if any(each.what == _CHECKPOINT for each in current):
        return current
    if last is not None and (lost := first_lost(checkpoint, last.batch)) is not None:
        return [lost_checkpoint(plan, f"batch {lost} in {plan.job.target.name}", "gone from its log")]
    if last is None or last.batch < 0 or read_offsets(checkpoint, last.batch) is not None:
        return current
    return [lost_checkpoint(plan, f"batch {last.batch}", "gone")]


def recreated_topic_differences(context: StageContext, plan: JobPlan, generation: int) -> list[Difference]:
    """The topics that are not those that the offsets of a job's generation belong to. Of all differences, only these
    say whether the offsets can be read again."""
    before = ids_read(context, plan.job, generation)
    now = {topic: context.source.topic_id(topic) for topic in plan.job.topic_names if topic in before}
    anew = _for_inputs(plan.kind, reads_tables=bool(plan.job.tables))
    return [_another_one(f"{_TOPIC}{name}", *ids, anew) for name, ids in changed_ids(before, now).items()]


def compare(before: RunFacts, now: RunFacts, *, renewable: bool = False) -> list[Difference]:
    """What differs between a job's last run and the job as it is; what does not matter to either is left out.

    Args:
        before: The last run.
        now: The job.
        renewable: Whether a new generation of it can keep the table's rows.
    """
    result = [*_whole(before, now, renewable=renewable)]
    if not any(each.what == "kind" for each in result):
        result += [*_inputs(before, now)]
        if now.kind == "scd":
            result += [*_order(before, now)]
        elif now.kind == "row":
            result += [*_united(before, now)]
        else:
            result += [*_state(before, now, renewable=renewable)]
        result += [*_result(before, now)]
    return result


def newer_schemas(before: RunFacts, now: RunFacts, subjects: Mapping[str, str]) -> list[Difference]:
    """What the newest schemas of a registry change of the columns that a job reads.

    Args:
        before: The last run.
        now: The job.
        subjects: The inputs whose columns are those of a subject's newest version, each with the subject.
    """
    result = []
    for name, subject in subjects.items():
        old, new = (each.inputs[name].columns if name in each.inputs else {} for each in (before, now))
        apart = [column for column in {**old, **new} if old.get(column) != new.get(column)]
        if old and apart:
            was, is_now = (
                ", ".join(f"{c} {columns[c]}" if c in columns else f"no {c}" for c in apart)
                for columns in (old, new)
            )
            why = "values of older versions are read as the newest: a column that they lack has its default"
            result.append(Difference(f"schema {subject}", was, is_now, "keep", why))
    return result


def remedy_of(differences: Sequence[Difference]) -> Remedy:
    """The remedy that all differences together ask for."""
    return max((each.remedy for each in differences), key=_STRENGTH.index, default="keep")


def require_compatible(job: str, differences: Sequence[Difference]) -> None:
    """Refuses to go on where that would corrupt or lose state.

    Raises:
        SourceReplacedError: Nothing differs but rows that it has read, which a backfill replaced.
        IncompatibleStateError: The message names each difference and the remedy.
    """
    reason = why_incompatible(job, differences)
    if reason is not None:
        wrong = [each for each in differences if each.remedy != "keep"]
        waits = all(each.what.startswith(_ROWS_OF) for each in wrong)
        raise SourceReplacedError(reason) if waits else IncompatibleStateError(reason)


def why_incompatible(job: str, differences: Sequence[Difference]) -> str | None:
    """Why a job cannot go on from its last run and what can be done, None where it can."""
    remedy = remedy_of(differences)
    if remedy == "keep":
        return None
    reasons = "; ".join(str(each) for each in differences if each.remedy != "keep")
    can = _remedy_sentence(job, remedy, differences)
    return f"job {job!r} cannot go on from its last run: {reasons}. What can be done: {can}"


_COMES_BEFORE = re.compile(r"__(ingest_union|ingest_enriched|(ingest_)?step_\d+)$")
"""The names of parts that do some of what a job's function does, before the last part; see `Job.comes_before`."""


def _remedy_sentence(job: str, remedy: Remedy, differences: Sequence[Difference]) -> str:
    declared = declared_name(job)
    wrong = [each for each in differences if each.remedy != "keep"]
    # A topic that was made again has another id, whatever is sent to it: it is not to be put back.
    back = "" if all(each.what.startswith(_TOPIC) for each in wrong) else "put it back, or "
    if remedy == "rebuild" and any(each.what.startswith(_TOPIC) for each in differences):
        return f"{back}build the tables again from empty: headwater jobs rebuild {declared}"
    if remedy == "renew" and not back:
        return (
            "begin a new generation that keeps the table's rows and reads the new topic from its beginning: headwater "
            f"jobs renew {declared}"
        )
    if remedy == "rebuild" and _COMES_BEFORE.search(job):
        return (
            f"put it back, or build its tables again: beside the live ones with headwater backfill plan {declared} "
            f"--rebuild, which says what comes first, or from empty with headwater jobs rebuild {declared}"
        )
    return f"{REMEDIES[remedy].replace('JOB', declared)} {declared if remedy == 'renew' else job}"


_MENDED = frozenset({"Spark", "state", _CHECKPOINT})
"""What a warm-up mends, though it may ask for a rebuild: the state's old expressions are the user's to judge."""
_USES_NEW_STATE = frozenset({"shuffle partitions", "state store"})


def asks_to_be_renewed(differences: Sequence[Difference]) -> bool:
    """Whether a stateful job differs from its last run so that it needs, or can use, new state."""
    return remedy_of(differences) != "keep" or any(each.what in _USES_NEW_STATE for each in differences)


def require_warmable(job: str, differences: Sequence[Difference]) -> None:
    """Sees to it that what differs from a stateful job's last run is mended by warming up new state.

    Raises:
        IncompatibleStateError: It is not; the message names it.
    """
    unmended = [
        each
        for each in differences
        if each.what.startswith("watermark of") or (each.remedy != "keep" and each.what not in _MENDED)
    ]
    if unmended:
        reasons = "; ".join(str(each) for each in unmended)
        remedy = _remedy_sentence(job, "rebuild", unmended)
        raise IncompatibleStateError(
            f"job {job!r} cannot keep its table's rows: {reasons}. What can be done: {remedy}"
        )


def _replaced(context: StageContext, plan: JobPlan, checkpoint: Path) -> Iterator[Difference]:
    target = context.home.table(plan.job.target.name)
    for name, declared in plan.job.inputs.items():
        if not isinstance(declared, TableInput) or not next_commit(context.home.table(declared.name)):
            continue
        reader = InputReader(context, name, declared, plan.job.name)
        position = reader.position(checkpoint)
        replaced = None if position is None else reader.replaced_by(target, position)
        if replaced is not None and replaced.entry is not None:
            now = f"those of the backfill {Extra.BACKFILL.of(replaced.entry)} (version {replaced.version})"
            why = "what was made of the rows before would stay"
            yield Difference(f"{_ROWS_OF}{declared.name}", "those that it has read", now, "rebuild", why)


def _whole(before: RunFacts, now: RunFacts, *, renewable: bool) -> Iterator[Difference]:
    if before.kind != now.kind:
        yield Difference("kind", before.kind, now.kind, "rebuild", "the state is of another operator")
    yield from _targets(before.targets, now.targets)
    if (before.mode, before.keys) != (now.mode, now.keys) and "update" in (before.mode, now.mode):
        why = "rows would be replaced by other keys than those that they were written under"
        yield Difference("target keys", _keys(before), _keys(now), "rebuild", why)
    if _minor(before.spark) != _minor(now.spark):
        older = _minor(now.spark) < _minor(before.spark)
        why = (
            "an older Spark does not read a newer one's checkpoint"
            if older
            else "Spark reads the checkpoints of older versions"
        )
        mends: Remedy = "renew" if renewable else "rebuild"
        yield Difference("Spark", before.spark, now.spark, mends if older else "keep", why)


def _targets(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> Iterator[Difference]:
    lacks = "what the job has read so far"
    added = [name for name in now if name not in before]
    if added or next(iter(before)) != next(iter(now)):  # the first one has the state
        why = f"a new table would lack {lacks}" if added else "the first one has the job's state"
        yield Difference("target", ", ".join(before), ", ".join(now), "rebuild", why)
    elif len(now) < len(before):
        yield Difference("target", ", ".join(before), ", ".join(now), "keep", "the others stay as they are")
    for name in (name for name in now if name in before and before[name] != now[name]):
        gone = "gone" if now[name] is None else "another table of that name"
        yield Difference(f"the table {name}", "the job's own", gone, "rebuild", f"it lacks {lacks}")


def _inputs(before: RunFacts, now: RunFacts) -> Iterator[Difference]:
    old_sources, new_sources = _sources(before), _sources(now)
    anew = _for_inputs(now.kind, reads_tables=any(each.kind == "table" for each in now.inputs.values()))
    if old_sources.keys() != new_sources.keys():
        why = "the checkpoint's offsets are of another input"
        yield Difference("inputs", ", ".join(old_sources), ", ".join(new_sources), anew, why)
    others = changed_ids(
        *({name: source_id for name, (_, source_id) in each.items()} for each in (old_sources, new_sources))
    )
    for name in (name for name in new_sources if name in old_sources):
        (old, _), (new, _) = old_sources[name], new_sources[name]
        if name in others:
            yield _another_one(f"the {name}", *others[name], anew)
        if (
            now.kind not in ("row", "scd")
            and old.watermark
            and new.watermark
            and old.watermark != new.watermark
        ):
            longer = parse_duration(new.watermark) > parse_duration(old.watermark)
            why = (
                "Spark has let go of state that rows within the longer delay belong to, and would drop them"
                if longer
                else "rows are late sooner from now on"
            )
            yield Difference(
                f"watermark of {name}", old.watermark, new.watermark, "rebuild" if longer else "keep", why
            )


def _for_inputs(kind: str, *, reads_tables: bool) -> Remedy:
    """What can be done where an input is another one."""
    # A new checkpoint would read rows of a table a second time, and nothing says which they are.
    return "rebuild" if kind not in STATELESS or reads_tables else "renew"


def _another_one(what: str, before: str, now: str, remedy: Remedy) -> Difference:
    why = "it was deleted and made again, and its records are not those that the job has read"
    return Difference(what, before, now, remedy, why)


def _sources(facts: RunFacts) -> dict[str, tuple[InputFacts, str | None]]:
    """Each topic and table that is read, with its facts and its id."""
    return {
        f"{each.kind} {name}": (each, source_id)
        for each in facts.inputs.values()
        for name, source_id in each.ids.items()
    }


def _order(before: RunFacts, now: RunFacts) -> Iterator[Difference]:
    if before.operator != now.operator:
        why = "the rows that are there were made in the old order, and only those of keys that change are made anew"
        yield Difference("dimension", before.operator, now.operator, "rebuild", why)


def _united(before: RunFacts, now: RunFacts) -> Iterator[Difference]:
    if before.state and now.state and before.state != now.state:
        gone, new = _apart(before.state, now.state)
        why = "the table that unites the inputs has rows that the old one made, of which the windows are made again"
        yield Difference("what comes before the window", gone, new, "rebuild", why)


_MOST_CHARACTERS, _CONTEXT = 200, 40
"""So many characters of a plan's line are shown, which may have thousands; some of them stand before what differs."""


_AGGREGATE, _MOST_COLUMNS = "Aggregate(", 3


def _apart(before: Sequence[str], now: Sequence[str]) -> tuple[str, str]:
    """The lines that only one of the two has. Where they are long, an excerpt of the first of them, and how many
    follow."""
    gone, new = [each for each in before if each not in now], [each for each in now if each not in before]
    if len(gone) == len(new) == 1 and (columns := _columns_apart(gone[0], new[0])) is not None:
        return columns
    whole = _listed(gone), _listed(new)
    if max(map(len, whole)) <= _MOST_CHARACTERS:
        return whole
    both = zip(gone[0] if gone else "", new[0] if new else "", strict=False)
    same = sum(1 for _ in takewhile(lambda each: each[0] == each[1], both))
    return _excerpt(gone, same), _excerpt(new, same)


def _columns_apart(before: str, now: str) -> tuple[str, str] | None:
    """The columns of two aggregations that are computed otherwise, each with its expression; None where more than these
    differs, or they are columns of the library."""
    if not (before.startswith(_AGGREGATE) and now.startswith(_AGGREGATE)):
        return None
    sides = [aliased_columns(each[len(_AGGREGATE) : -1]) for each in (before, now)]
    (old, others), (new, other) = sides
    apart = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if others != other or not apart or any(name.startswith("_") for name in apart):
        return None
    # A column of which only the type differs is shown with its type.
    typed = {name for name in apart if name in old and name in new and old[name][0] == new[name][0]}
    more = f"; and {len(apart) - _MOST_COLUMNS} more" if len(apart) > _MOST_COLUMNS else ""

    def described(columns: Mapping[str, tuple[str, str]]) -> str:
        named = [
            _described_column(name, columns.get(name), typed=name in typed) for name in apart[:_MOST_COLUMNS]
        ]
        return ", ".join(named) + more

    return described(old), described(new)


def _described_column(name: str, column: tuple[str, str] | None, *, typed: bool) -> str:
    if column is None:
        return f"no {name}"
    expression, kind = column
    text = expression if len(expression) <= _MOST_CHARACTERS else f"{expression[:_MOST_CHARACTERS]} ..."
    return f"{name} = {text}" + (f" ({kind})" if typed else "")


def _excerpt(lines: Sequence[str], same: int) -> str:
    """The first of some lines, from shortly before the place where it begins to differ."""
    if not lines:
        return _listed(lines)
    line, node, begin = lines[0], lines[0].find("(") + 1, 0
    if same > node + _CONTEXT:
        cuts = (line.find(cut, same - _CONTEXT, same) + 1 for cut in " ,<")
        begin = min(filter(None, cuts), default=same)
    end = begin + _MOST_CHARACTERS
    text = (f"{line[:node]}... " if begin else "") + line[begin:end] + (" ..." if end < len(line) else "")
    return text + (f"; and {len(lines) - 1} more" if len(lines) > 1 else "")


def _state(before: RunFacts, now: RunFacts, *, renewable: bool) -> Iterator[Difference]:
    if before.operator != now.operator:
        why = "the state is kept by the old one"
        yield Difference("operator", before.operator, now.operator, "rebuild", why)
    elif before.state != now.state:
        gone, new = _apart(before.state, now.state)
        why = "the state holds the old expressions' values"
        if renewable:
            why += "; where the new ones give the same, headwater jobs renew keeps the table's rows"
        yield Difference("state", gone, new, "rebuild", why)
    new_one = "a new generation" + (", headwater jobs renew" if renewable else "")
    if before.shuffle_partitions != now.shuffle_partitions:
        why = f"the checkpoint's {before.shuffle_partitions} stay in effect until {new_one}"
        yield Difference("shuffle partitions", before.shuffle_partitions, now.shuffle_partitions, "keep", why)
    if before.state_store != now.state_store:
        store, other = (each.state_store.rpartition(".")[2] for each in (before, now))
        yield Difference("state store", store, other, "keep", f"{store} stays in effect until {new_one}")


def _result(before: RunFacts, now: RunFacts) -> Iterator[Difference]:
    for name in before.columns.keys() & now.columns.keys():
        old, new = before.columns[name], now.columns[name]
        if old != new:
            yield Difference(_column(name), old, new, "keep", "the table's column keeps its type")
    added = [name for name in now.columns if name not in before.columns]
    gone = [name for name in before.columns if name not in now.columns]
    if added:
        yield Difference("columns", "without " + ", ".join(added), "with", "keep", "NULL in the rows before")
    if gone:
        yield Difference("columns", "with " + ", ".join(gone), "without", "keep", "NULL from now on")
    if before.dedup != now.dedup:
        why = "what was not looked at before is not known now"
        yield Difference("deduplication", before.dedup, now.dedup, "keep", why)
    elif before.fingerprint != now.fingerprint:
        why = "rows before are as the old one made them"
        yield Difference("function or declaration", before.fingerprint, now.fingerprint, "keep", why)


def _column(name: str) -> str:
    return f"column {name}"


def _keys(facts: RunFacts) -> str:
    return f"{facts.mode} by {', '.join(facts.keys)}" if facts.keys else facts.mode


def _listed(lines: Sequence[str]) -> str:
    return "; ".join(lines) or "nothing"


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
