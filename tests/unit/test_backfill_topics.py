"""Backfills of topics that were deleted and made again, without Spark: what the ids and the ledger say."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.versions import batch_at, versions
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.backfill.topics import ids_of_topics, on_same_topics, require_same_topics
from headwater_streams.base.errors import (
    DataLossError,
    IncompatibleStateError,
    JobDefinitionError,
    UnavailableError,
)
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.delta.marks import generation_id
from headwater_streams.plan.job import Job, bind
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.reader import RecordSource
from headwater_streams.spark.run_facts import InputFacts, RunFacts
from headwater_streams.storage.home import Home

clicks = hw.topic("clicks", schema="n INT")
both = hw.topic("clicks", "taps", schema="n INT")
bids = hw.table("silver.bids")

Ids = Mapping[str, str | None]


@hw.job(target=hw.delta("silver.clicks"))
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("silver.clicks"))
def several(both: DataFrame) -> DataFrame:
    return both


@hw.job(target=hw.delta("silver.clicks"))
def united(clicks: DataFrame, bids: DataFrame) -> DataFrame:
    return hw.union(clicks, bids)


class Topics:
    """Topics with ids and ends, as a broker tells them."""

    def __init__(self, ids: Ids, ends: Mapping[str, Mapping[int, int]] | Exception | None = None) -> None:
        self.ids, self.ends = dict(ids), ends

    def topic_id(self, topic: str) -> str | None:
        return self.ids.get(topic)

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        assert self.ends is not None, "nobody need ask for what the ids tell"
        if isinstance(self.ends, Exception):
            raise self.ends
        return {partition: (0, end) for partition, end in self.ends[topic].items()}


def context_of(folder: Path, topics: Topics) -> StageContext:
    return StageContext(cast(SparkSession, None), Home(folder), cast(RecordSource, topics))


def part_of(job: Job, kind: str = "row") -> JobPlan:
    return cast(JobPlan, SimpleNamespace(job=job, kind=kind))


def log(home: Home, *entries: LedgerEntry) -> None:
    """Writes a table's log: a version for each entry, with the mark of the generation that it begins."""
    folder = home.table("silver.clicks") / "_delta_log"
    folder.mkdir(parents=True)
    column = {"name": "n", "type": "integer", "nullable": True, "metadata": {}}
    columns = json.dumps({"type": "struct", "fields": [column]})
    made = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": columns}
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**made, "partitionColumns": [], "configuration": {}, "createdTime": 0}},
    ]
    for version, entry in enumerate(entries):
        info = {"timestamp": 0, "operation": "WRITE", "userMetadata": entry.to_json()}
        actions: list[dict[str, Any]] = [{"commitInfo": info}, *(first if not version else [])]
        if entry.kind == "generation":
            mark = {"appId": generation_id(entry.job), "version": entry.generation, "lastUpdated": 0}
            actions.append({"txn": mark})
        (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def batch(
    number: int, ranges: Mapping[str, tuple[int, int]], *, job: str = "clean", of: int = 1
) -> LedgerEntry:
    source = SourceRange(
        input="clicks", ranges={topic: {0: pair} for topic, pair in ranges.items()}, topic="clicks"
    )
    read = {"clicks": {"read": 1, "written": 1}}
    return LedgerEntry(
        job=job,
        generation=of,
        batch=number,
        table="silver.clicks",
        kind="row",
        sources=(source,),
        accounting=read,
    )


def renewed(generation: int, *, job: str = "clean", **extra: Any) -> LedgerEntry:
    told = {"action": "renew", "starts": {}, "after": {"generation": generation - 1, "batch": 0}, **extra}
    return LedgerEntry(
        job=job, generation=generation, batch=-1, table="silver.clicks", kind="generation", extra=told
    )


def checkpoint(home: Home, ids: Ids, *, job: str = "clean", generation: int = 1) -> None:
    """A checkpoint with one batch, made with topics of these ids."""
    inputs = {"clicks": InputFacts(kind="topic", ids=ids, watermark=None, columns={})}
    facts = RunFacts(
        spark="4.1.3",
        kind="row",
        targets={},
        keys=(),
        mode="append",
        inputs=inputs,
        operator="",
        state=(),
        columns={},
        shuffle_partitions="2",
        state_store="x",
        dedup="None",
        fingerprint="f",
    )
    folder = home.checkpoint(job, generation)
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "0").touch()
    (folder / "headwater.json").write_text(json.dumps(dataclasses.asdict(facts)))


OLD: Ids = {"clicks": "A"}


def test_plan_takes_the_ids_of_the_topics_that_a_job_has_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home, batch(0, {"clicks": (0, 5)}))
    checkpoint(home, OLD)
    assert ids_of_topics(context_of(tmp_path, Topics(OLD)), [part_of(bind(clean))]) == {"clicks": "A"}


def test_plan_is_refused_as_the_jobs_next_run_is_where_a_topic_was_made_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home, batch(0, {"clicks": (0, 5)}))
    checkpoint(home, OLD)
    told = (
        r"^job 'clean' cannot go on from its last run: the topic clicks: A before, B now; it was deleted and made "
        r"again, .* What can be done: .* keeps the table's rows and reads the new topic from its beginning: "
        "headwater jobs renew clean$"
    )
    with pytest.raises(IncompatibleStateError, match=told):
        ids_of_topics(context_of(tmp_path, Topics({"clicks": "B"})), [part_of(bind(clean))])


def test_plan_of_a_job_of_several_topics_names_the_one_that_was_made_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home, batch(0, {"clicks": (0, 5), "taps": (0, 3)}, job="several"))
    checkpoint(home, {"clicks": "A", "taps": "T"}, job="several")
    with pytest.raises(IncompatibleStateError, match=r"the topic taps: T before, U now") as refused:
        ids_of_topics(context_of(tmp_path, Topics({"clicks": "A", "taps": "U"})), [part_of(bind(several))])
    assert "topic clicks" not in str(refused.value)


def test_plan_of_a_job_that_cannot_be_renewed_does_not_send_to_a_backfill_that_is_refused(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    log(home, batch(0, {"clicks": (0, 5)}, job="united"))
    checkpoint(home, OLD, job="united")
    with pytest.raises(
        IncompatibleStateError, match=r"made again.*from empty: headwater jobs rebuild united$"
    ) as no:
        ids_of_topics(context_of(tmp_path, Topics({"clicks": "B"})), [part_of(bind(united))])
    assert "backfill" not in str(no.value)


@pytest.mark.parametrize("known", [{"clicks": None}, None])
def test_plan_without_a_known_id_goes_by_the_topics_end(known: Ids | None, tmp_path: Path) -> None:
    home, part = Home(tmp_path), part_of(bind(clean))
    log(home, batch(0, {"clicks": (0, 5)}), batch(1, {"clicks": (5, 9)}))
    if known is not None:
        checkpoint(home, known)

    def planned(ends: Mapping[int, int]) -> dict[str, str]:
        return ids_of_topics(context_of(tmp_path, Topics({"clicks": "B"}, {"clicks": ends})), [part])

    assert planned({0: 9}) == planned({0: 20, 1: 4}) == {"clicks": "B"}
    for shorter in ({0: 8}, {}, {1: 20}):
        with pytest.raises(
            DataLossError, match=r"clicks is not the topic .* read to 9; it was deleted and made again"
        ):
            planned(shorter)


@pytest.mark.parametrize("error", [UnavailableError("away"), JobDefinitionError("no such topic")])
def test_plan_where_nobody_answers_knows_nothing(error: Exception, tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home, batch(0, {"clicks": (0, 5)}))
    checkpoint(home, OLD)
    assert ids_of_topics(context_of(tmp_path, Topics({}, error)), [part_of(bind(clean))]) == {}


def test_generation_that_has_read_nothing_yet_has_the_topics_that_it_was_begun_on(tmp_path: Path) -> None:
    home, part = Home(tmp_path), part_of(bind(clean))
    log(home, batch(0, {"clicks": (0, 5)}), renewed(2, topic_ids={"clicks": "A"}))
    checkpoint(home, {"clicks": "before that"})
    assert ids_of_topics(context_of(tmp_path, Topics(OLD)), [part]) == {"clicks": "A"}
    with pytest.raises(
        IncompatibleStateError, match=r"the topic clicks: A before, B now.*headwater jobs renew clean"
    ):
        ids_of_topics(context_of(tmp_path, Topics({"clicks": "B"})), [part])


def repair(**more: Any) -> BackfillPlan:
    return BackfillPlan(
        id="clean-1", job="clean", reference="", kind="row", target="silver.clicks",
        quarantine="silver.clicks__quarantine", input_name="clicks", keys=("n",), columns=("n",), fingerprint="f",
        asked={"all": True}, ranges={"clicks": {0: (0, 5)}}, windows=(), rows=5, chunks=(), base_version=0,
        generation=1, batch=0, pinned=None, notes=(), created_at="2013-02-01T00:00:00Z", **more,
    )  # fmt: skip


def whole(**more: Any) -> dict[str, Any]:
    return {
        "id": "clean-1", "job": "clean", "reference": "", "kind": "row", "target": "silver.clicks", "sides": (),
        "further": (), "keys": ("n",), "columns": ("n",), "fingerprint": "f", "base_generation": 1, "base_version": 0,
        "rows": 5, **more,
    }  # fmt: skip


def rebuild(**more: Any) -> RebuildPlan:
    return RebuildPlan(**whole(**more))


def rewind(**more: Any) -> RewindPlan:
    return RewindPlan(**whole(**more), version=1, batch=0, origin=1, ranges={"clicks": {0: (0, 5)}})


AnyKind = Callable[..., BackfillPlan | RebuildPlan | RewindPlan]
KINDS: list[AnyKind] = [repair, rebuild, rewind]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_stored_with_a_plan_and_one_of_before_has_none(kind: AnyKind, tmp_path: Path) -> None:
    planned = kind(topic_ids=OLD)
    value = json.loads(json.dumps(planned.to_json()))
    assert value["format"] == 2
    assert type(planned).from_json(value) == planned
    before = {name: found for name, found in value.items() if name != "topic_ids"} | {"format": 1}
    assert type(planned).from_json(before) == kind()
    require_same_topics(context_of(tmp_path, Topics({"clicks": "B"})), type(planned).from_json(before))


def test_plan_on_a_topic_made_again_is_another_plan(tmp_path: Path) -> None:
    home = Home(tmp_path)
    one, same, other = (stored(home, repair(topic_ids={"clicks": each}), 0).id for each in "AAB")
    assert one == same != other
    one, same, other = (stored(home, rebuild(topic_ids={"clicks": each}), 0).id for each in "AAB")
    assert one == same != other


@pytest.mark.parametrize("kind", KINDS)
def test_step_is_refused_once_a_topic_was_made_again(kind: AnyKind, tmp_path: Path) -> None:
    planned = kind(topic_ids={"clicks": "A", "taps": "T"})
    for same in ({"clicks": "A", "taps": "T"}, {"clicks": "A"}, {}):
        require_same_topics(context_of(tmp_path, Topics(same)), planned)
    told = (
        r"^the topic taps was deleted and made again since the backfill 'clean-1' was planned: its id was T and is U; "
        r".* headwater jobs renew clean; then plan again$"
    )
    with pytest.raises(BackfillError, match=told):
        require_same_topics(context_of(tmp_path, Topics({"clicks": "A", "taps": "U"})), planned)


def test_step_that_reads_a_topic_which_is_made_again_meanwhile_is_refused(tmp_path: Path) -> None:
    topics, planned = Topics(OLD), repair(topic_ids=OLD)
    context = context_of(tmp_path, topics)
    with on_same_topics(context, planned):
        pass
    with pytest.raises(DataLossError, match="offsets are missing"), on_same_topics(context, planned):
        raise DataLossError("offsets are missing")
    with pytest.raises(BackfillError, match="made again since"), on_same_topics(context, planned):
        topics.ids["clicks"] = "B"
    with pytest.raises(BackfillError, match="made again since"), on_same_topics(context, planned):
        pytest.fail("nothing is read")


def test_step_that_fails_as_a_topic_is_made_again_says_why(tmp_path: Path) -> None:
    topics, planned = Topics(OLD), repair(topic_ids=OLD)

    def fails() -> None:
        with on_same_topics(context_of(tmp_path, topics), planned):
            topics.ids["clicks"] = "B"
            raise DataLossError("offsets are missing")

    with pytest.raises(BackfillError, match="made again since"):
        fails()


def test_rewind_goes_back_as_far_as_what_came_later_can_be_read_again(tmp_path: Path) -> None:
    home, job = Home(tmp_path), bind(clean)
    log(
        home,
        batch(0, {"clicks": (0, 5)}),
        batch(1, {"clicks": (5, 9)}),
        renewed(2, anew=["clicks"]),
        batch(0, {"clicks": (0, 4)}, of=2),
        batch(1, {"clicks": (4, 7)}, of=2),
    )
    for generation in (1, 2):
        for folder in ("offsets", "commits"):
            (home.checkpoint("clean", generation) / folder).mkdir(parents=True)
            for number in ("0", "1"):
                text = 'v1\n{"batchWatermarkMs": 0}\n{}' if folder == "offsets" else ""
                (home.checkpoint("clean", generation) / folder / number).write_text(text)
    history = read_history(home.table("silver.clicks"), "silver.clicks", "clean")
    assert history.last_of_old == 1
    why = {each.version: each.why_not for each in versions(home, job)}
    assert why[0] is not None
    assert why[0].startswith("what came of a topic up to version 1 cannot be read again")
    assert [why[1], why[3], why[4]] == [None, None, "it is the last one"]
    for version in (0, 1):
        assert batch_at(history, "clean", version) == (version, history.entries()[version])
    shutil.rmtree(home.table("silver.clicks"))
    log(home, batch(0, {"clicks": (0, 5)}), batch(1, {"clicks": (5, 9)}))
    assert read_history(home.table("silver.clicks"), "silver.clicks", "clean").last_of_old == -1
