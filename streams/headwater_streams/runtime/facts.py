"""The facts that a checkpoint is made with: how they are worked out, kept and moved; see `spark.run_facts`."""

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from headwater_streams.delta.scd_target import ScdTarget
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.run_facts import InputFacts, RunFacts, facts_of_last_run
from headwater_streams.storage.damage import FACTS_FILE
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import table_id
from headwater_streams.storage.records import write_record

_ADDRESS = re.compile(
    r" at 0x[0-9a-f]+"
)  # of a function that an operator was given; its text is in the fingerprint


def facts_of(context: StageContext, plan: JobPlan) -> RunFacts:
    """The facts of the job as it is now, in this session."""
    job, conf = plan.job, context.spark.conf
    inputs = {}
    for name, declared in job.inputs.items():
        kind, ids = "table", {declared.name: _table_id(context.home.table(declared.name))}
        if isinstance(declared, TopicInput):
            kind, ids = "topic", {topic: context.source.topic_id(topic) for topic in declared.names}
        columns = {f.name: f.dataType.simpleString() for f in plan.inputs[name].fields}
        inputs[name] = InputFacts(kind=kind, ids=ids, watermark=declared.watermark, columns=columns)
    return RunFacts(
        spark=str(context.spark.version),
        kind=plan.kind,
        targets={name: _table_id(context.home.table(name)) for name in (job.target.name, *job.other_tables)},
        keys=tuple(job.target.keys),
        mode=job.target.mode,
        inputs=inputs,
        operator=_operator(plan),
        state=plan.state,
        columns={f.name: f.dataType.simpleString() for f in plan.result.fields},
        shuffle_partitions=str(conf.get("spark.sql.shuffle.partitions")),
        state_store=str(conf.get("spark.sql.streaming.stateStore.providerClass")),
        dedup=repr(job.dedup),
        fingerprint=job.fingerprint,
    )


def _operator(plan: JobPlan) -> str:
    if isinstance(plan.job.target, ScdTarget):
        return plan.job.target.order_description
    return _ADDRESS.sub("", repr(plan.operator)) if plan.operator is not None else ""


def keep_facts(checkpoint: Path, now: RunFacts) -> RunFacts:
    """Writes the facts that hold from here on, and returns them. What the checkpoint itself determines stays as it was.

    Spark takes the number of shuffle partitions and the state store from the checkpoint, whatever the session says
    (OffsetSeqMetadata.relevantSQLConfs).
    """
    before = facts_of_last_run(checkpoint)
    if before is not None:
        ids_before = {name: each.ids for name, each in before.inputs.items()}
        inputs = {
            name: replace(
                each,
                ids={s: source_id or ids_before.get(name, {}).get(s) for s, source_id in each.ids.items()},
            )
            for name, each in now.inputs.items()
        }
        now = replace(
            now, shuffle_partitions=before.shuffle_partitions, state_store=before.state_store, inputs=inputs
        )
    if now != before:
        write_record(checkpoint / FACTS_FILE, now)
    return now


def move_facts(checkpoint: Path, context: StageContext, tables: Collection[str] = ()) -> None:
    """Changes the facts of a checkpoint to name the tables of another home, which take the place of its tables.

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
        name: replace(
            each, ids={s: ids[s] if s in tables else source_id for s, source_id in each.ids.items()}
        )
        for name, each in before.inputs.items()
    }
    write_record(checkpoint / FACTS_FILE, replace(before, targets=targets, inputs=inputs))


def _table_id(path: Path) -> str | None:
    return table_id(path) if has_versions(path) else None
