"""What a generation's checkpoint was made with: `<checkpoint>/headwater.json`, written at each start of the job.

    {"spark": "4.1.3", "kind": "window", "targets": {"gold.delays": "<Delta's id of the table>"},
     "keys": ["carrier"], "mode": "update",
     "inputs": {"departures": {"kind": "topic", "ids": {"departures": "<KIP-516>"}, ...}},
     "operator": "TumblingWindow(...)", "state": ["Aggregate ... "], "columns": {"carrier": "string"},
     "shuffle_partitions": "2", "state_store": "org.apache...", "dedup": "ByOffset(...)", "fingerprint": "9f2c...",
     "_crc32": "<of all before>"}

A job that differs from it cannot always go on with the state that Spark kept; `compatibility` says when it can.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater_streams.damage import FACTS_FILE, DamagedFileError
from headwater_streams.delta_log import has_versions
from headwater_streams.delta_rows import table_id
from headwater_streams.runtime.checkpoint import last_planned
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.scd_target import ScdTarget
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.stored_files import read_json, write_json

_ADDRESS = re.compile(
    r" at 0x[0-9a-f]+"
)  # of a function that an operator was given; its text is in the fingerprint


@dataclass(frozen=True)
class InputFacts:
    """One input.

    Attributes:
        kind: `"topic"` or `"table"`.
        ids: The topics or the table, each with its own id; None where nobody could tell.
        watermark: The delay, as it is declared.
        columns: The types of its columns.
    """

    kind: str
    ids: Mapping[str, str | None]
    watermark: str | None
    columns: Mapping[str, str]

    @property
    def source(self) -> str:
        """`"topic departures"`, `"topics east, west"` or `"table silver.departures"`."""
        return f"{self.kind}{'s' if len(self.ids) > 1 else ''} {', '.join(self.ids)}"


@dataclass(frozen=True)
class RunFacts:
    """What decides whether a checkpoint and a job belong together; see the module.

    Attributes:
        spark: Spark's version.
        kind: The kind of stage.
        targets: The tables, the one with the state first, each with Delta's id of it; None while there is none.
        keys: The target's keys.
        mode: The target's mode.
        inputs: The inputs by parameter.
        operator: The stateful operator's spec; how a dimension orders changes; empty for row jobs.
        state: Each node of the plan that keeps state, with its expressions and their types; see `JobPlan`.
        columns: The types of the result's columns.
        shuffle_partitions: How many pieces the state is in.
        state_store: What keeps it.
        dedup: The deduplication.
        fingerprint: A digest of the function and its declaration.
    """

    spark: str
    kind: str
    targets: Mapping[str, str | None]
    keys: tuple[str, ...]
    mode: str
    inputs: Mapping[str, InputFacts]
    operator: str
    state: tuple[str, ...]
    columns: Mapping[str, str]
    shuffle_partitions: str
    state_store: str
    dedup: str
    fingerprint: str

    @property
    def topic_ids(self) -> dict[str, str | None]:
        """The topics of all inputs, each with its own id."""
        topics = [each for each in self.inputs.values() if each.kind == "topic"]
        return {name: found for each in topics for name, found in each.ids.items()}


def facts_of(context: StageContext, plan: JobPlan) -> RunFacts:
    """What the job is now, in this session."""
    job, conf = plan.job, context.spark.conf
    inputs = {}
    for name, declared in job.inputs.items():
        kind, ids = "table", {declared.name: _table_id(context.home.table(declared.name))}
        if isinstance(declared, TopicInput):
            kind, ids = "topic", {topic: context.source.topic_id(topic) for topic in declared.names}
        columns = {f.name: f.dataType.simpleString() for f in plan.inputs[name].fields}
        inputs[name] = InputFacts(kind, ids, declared.watermark, columns)
    return RunFacts(
        str(context.spark.version),
        plan.kind,
        {name: _table_id(context.home.table(name)) for name in (job.target.name, *job.other_tables)},
        tuple(job.target.keys),
        job.target.mode,
        inputs,
        _operator(plan),
        plan.state,
        {f.name: f.dataType.simpleString() for f in plan.result.fields},
        str(conf.get("spark.sql.shuffle.partitions")),
        str(conf.get("spark.sql.streaming.stateStore.providerClass")),
        repr(job.dedup),
        job.fingerprint,
    )


def _operator(plan: JobPlan) -> str:
    if isinstance(plan.job.target, ScdTarget):
        return plan.job.target.order_told
    return _ADDRESS.sub("", repr(plan.operator)) if plan.operator is not None else ""


def facts_of_last_run(checkpoint: Path) -> RunFacts | None:
    """What the checkpoint was made with; None where no batch has begun, or a Headwater before this file made it.

    Raises:
        DamagedFileError: The file is not what was written.
    """
    path = checkpoint / FACTS_FILE
    if last_planned(checkpoint) is None or not path.exists():
        return None
    value: dict[str, Any] = read_json(path)
    try:
        inputs = {name: InputFacts(**found) for name, found in value.pop("inputs").items()}
        keys, state = tuple(value["keys"]), tuple(value["state"])
        return RunFacts(**{**value, "keys": keys, "state": state, "inputs": inputs})
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(path, f"is not what a run writes ({error})") from error


def keep_facts(checkpoint: Path, now: RunFacts) -> RunFacts:
    """Writes down what goes on from here, and gives it; what the checkpoint itself holds on to stays as it was.

    Spark takes the number of shuffle partitions and the state store from the checkpoint, whatever the session says
    (OffsetSeqMetadata.relevantSQLConfs).
    """
    before = facts_of_last_run(checkpoint)
    if before is not None:
        known = {name: each.ids for name, each in before.inputs.items()}
        inputs = {
            name: replace(each, ids={s: found or known.get(name, {}).get(s) for s, found in each.ids.items()})
            for name, each in now.inputs.items()
        }
        now = replace(
            now, shuffle_partitions=before.shuffle_partitions, state_store=before.state_store, inputs=inputs
        )
    if now != before:
        write_json(checkpoint / FACTS_FILE, dataclasses.asdict(now))
    return now


def move_facts(checkpoint: Path, context: StageContext, tables: Collection[str] = ()) -> None:
    """Makes what a checkpoint was made with speak of the tables of another home, which take its tables' place.

    Args:
        checkpoint: The checkpoint.
        context: The other home.
        tables: The tables that it reads, too.
    """
    before = facts_of_last_run(checkpoint)
    if before is None:
        return
    ids = {name: _table_id(context.home.table(name)) for name in (*before.targets, *tables)}
    targets = {name: ids[name] for name in before.targets}
    inputs = {
        name: replace(each, ids={s: ids[s] if s in tables else found for s, found in each.ids.items()})
        for name, each in before.inputs.items()
    }
    write_json(checkpoint / FACTS_FILE, dataclasses.asdict(replace(before, targets=targets, inputs=inputs)))


def _table_id(path: Path) -> str | None:
    return table_id(path) if has_versions(path) else None
