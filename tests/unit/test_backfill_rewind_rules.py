"""A rewind, planned by facts alone: to which batch, what comes undone, and whether the job can go on from there.

version  0     1        2        3        4
         made  batch 0  batch 1  batch 2  batch 3      of clicks [0, 4), [4, 7), [7, 9), [9, 12)
"""

from typing import Any

import headwater as hw
from backfill_facts import commit, entry, history, offsets, part, said, source
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.rewind.remembered import KeptBatches, forgotten, why_forgotten
from headwater_streams.backfill.rewind.rules import RewindFacts, commits_of, rewind_of
from headwater_streams.backfill.rewind.sides import RepairedSide, why_not_undone
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.versions import batch_at, table_of
from headwater_streams.backfill.whole_planning import WholeFacts
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.runtime.compatibility import Difference
from walked_files import walks_far

clicks = hw.topic("clicks", schema="who STRING")
ROWS = part({"clicks": clicks})
BATCHES = [entry(n, source(offsets(clicks=pair))) for n, pair in enumerate([(0, 4), (4, 7), (7, 9), (9, 12)])]
RAN = history(*BATCHES)
TWO = part(
    {"clicks": clicks},
    branches={},
    tables={"good": hw.delta("silver.clicks"), "bots": hw.delta("silver.bots")},
)


def rewound(known: TableHistory = RAN, batch: int = 1, **more: Any) -> Any:
    found = more.pop("part", ROWS)
    at = more.pop("at", known.entries()[batch])
    placed = commits_of(found.job, {"silver.clicks": known}, at)
    facts: dict[str, Any] = {
        "whole": WholeFacts(part=found, history=known, generation=1),
        "named": known,
        "version": batch + 1,
        "at": at,
        "placed": placed,
        "kept": KeptBatches(has_it=True),
        "held": offsets(clicks=(2, 20)),
    }
    return rewind_of(RewindFacts(**{**facts, **more}))


def repair(action: str, name: str = "one") -> LedgerEntry:
    return entry(0, kind="backfill", extra={"action": action, "backfill": name})


def test_plan_has_the_batch_and_what_is_read_again() -> None:
    plan = rewound(topic_ids={"clicks": "A"})
    assert isinstance(plan, RewindPlan)
    assert (plan.version, plan.batch, plan.origin, plan.generation) == (2, 1, 1, 2)
    assert (plan.ranges, plan.rows, plan.notes) == (offsets(clicks=(7, 12)), 5, ())
    assert (plan.topic_ids, plan.versions, plan.asked) == ({"clicks": "A"}, {}, {"rewind": 2})


def test_batch_is_the_last_one_up_to_a_version() -> None:
    repaired = history(*BATCHES[:2], repair("swap"), *BATCHES[2:])
    assert batch_at(repaired, "clean", 3) == (2, BATCHES[1])
    assert batch_at(RAN, "clean", 2) == (2, BATCHES[1])


def test_version_without_a_batch_to_go_back_to_is_refused() -> None:
    assert said(batch_at(RAN, "clean", 5), BackfillError) == "silver.clicks has no version 5; its newest is 4"
    assert said(batch_at(history(), "clean", 0)) == (
        "the job 'clean' has written no batch to silver.clicks yet, so there is nothing to put back"
    )
    assert said(batch_at(RAN, "clean", 0)) == (
        "the oldest batch of the job 'clean' in silver.clicks is version 1, so it cannot be put back to version 0; to "
        "begin with an empty table, headwater jobs rebuild"
    )
    assert said(batch_at(RAN, "clean", 4)) == (
        "the job 'clean' has written nothing to silver.clicks after version 4: its last batch is version 4"
    )


def test_version_that_was_taken_back_is_refused() -> None:
    back = entry(0, kind="generation", generation=2, extra={"action": "rewind", "restored_version": 1})
    made = [commit(0), commit(1, BATCHES[0]), commit(4, back), commit(5, entry(1, generation=2))]
    known = TableHistory(made, "silver.clicks", "clean")
    assert said(batch_at(known, "clean", 3)) == (
        "what silver.clicks had in version 3 was taken back by version 4, so it cannot be put back to that; those that "
        "it can: headwater backfill versions"
    )
    assert batch_at(known, "clean", 1) == (1, BATCHES[0])


def test_table_is_one_of_the_job() -> None:
    assert table_of(TWO.job, None) == "silver.clicks"
    assert table_of(TWO.job, "silver.bots") == "silver.bots"
    assert said(table_of(TWO.job, "silver.cats")) == (
        "silver.cats is no table of the job 'clean'; it writes silver.clicks, silver.bots"
    )


def test_tables_of_a_job_are_put_back_to_where_they_have_the_same_batch() -> None:
    other = TableHistory([commit(7, BATCHES[0]), commit(9, BATCHES[1])], "silver.bots", "clean")
    placed = commits_of(TWO.job, {"silver.clicks": RAN, "silver.bots": other}, BATCHES[1])
    assert not isinstance(placed, Refusal)
    assert {name: made.version for name, made in placed.items()} == {"silver.clicks": 2, "silver.bots": 9}
    assert rewound(part=TWO, placed=placed).versions == {"silver.bots": 9}
    lacking = TableHistory([commit(7, BATCHES[0])], "silver.bots", "clean")
    placed = commits_of(TWO.job, {"silver.clicks": RAN, "silver.bots": lacking}, BATCHES[1])
    assert said(rewound(part=TWO, placed=placed)) == (
        "silver.bots does not have batch 1 of the job 'clean', which silver.clicks has, so they cannot be put back "
        "together; plan a rebuild: headwater backfill plan JOB --rebuild"
    )


def test_table_of_changes_is_put_back_to_its_last_ones_up_to_the_batch() -> None:
    job = part({"clicks": clicks}, target=hw.scd2("silver.clicks", keys=["who"], sequence_by="at")).job
    [changes] = job.other_tables
    made = [commit(0), commit(1, entry(0, kind="side")), commit(2, entry(3, kind="side"))]
    sides = {changes: TableHistory(made, changes, "clean")}
    placed = commits_of(job, {"silver.clicks": RAN, **sides}, BATCHES[1])
    assert not isinstance(placed, Refusal)
    assert placed[changes].version == 1
    sides = {changes: TableHistory(made[:1], changes, "clean")}
    placed = commits_of(job, {"silver.clicks": RAN, **sides}, BATCHES[1])
    assert not isinstance(placed, Refusal)
    assert placed[changes].version == 0, "no batch had anything for it"


def test_records_that_are_gone_are_refused() -> None:
    assert said(rewound(held=offsets(clicks=(8, 20))), DataLossError) == (
        "the job 'clean' would read clicks 0 from offset 7 again, and the topic has nothing before 8 any more"
    )
    assert said(rewound(held={"clicks": {}}), DataLossError).endswith(
        "the topic has no such partition any more"
    )


def test_batch_that_the_checkpoint_does_not_have_is_refused_with_its_oldest() -> None:
    kept = KeptBatches(has_it=False, batches=(2, 3))
    told = (
        "the checkpoint of the job 'clean' has the offsets and the state of batch 1 no more (its oldest is batch 2); "
        "plan a rebuild: headwater backfill plan JOB --rebuild"
    )
    assert said(rewound(kept=kept)) == f"silver.clicks cannot be put back to version 2: {told}"
    assert said(forgotten("clean", BATCHES[1], kept, keeps_rest=True)) == told
    assert "(it has none)" in str(why_forgotten("clean", 1, KeptBatches(has_it=False)))


def test_batch_whose_keys_rows_or_origins_are_not_kept_is_refused() -> None:
    assert said(rewound(keeps_rest=False)) == (
        "what the job 'clean' remembered after batch 1 is not kept any more; plan a rebuild: headwater backfill plan "
        "JOB --rebuild"
    )
    cold = entry(1, source(offsets(clicks=(4, 7))), extra={"cold": 3})
    assert said(rewound(at=cold)).startswith(
        "the job 'clean' has let go of what it had seen of some origins then"
    )


def test_topic_that_was_made_again_since_is_refused() -> None:
    begun = entry(-1, kind="generation", generation=2, extra={"action": "renew", "anew": ["clicks"]})
    new = [entry(n, source(offsets(clicks=(n, n + 1))), generation=2) for n in range(2)]
    known = history(*BATCHES[:2], begun, *new)
    assert said(rewound(known, 0)) == (
        "silver.clicks cannot be put back to version 1: what came of a topic up to version 2 cannot be read again, for "
        "it was deleted and made again since"
    )


def test_side_table_that_another_job_writes_and_a_repair_wrote_anew_is_refused() -> None:
    alone = RepairedSide(name="silver.clicks__late", repair="one", others=())
    shared = RepairedSide(name="silver.clicks__quarantine", repair="one", others=("clean__ingest", "other"))
    assert why_not_undone([alone]) is None
    assert said(rewound(sides=[alone, shared])) == (
        "silver.clicks cannot be put back to version 2: it was repaired by one since, which wrote "
        "silver.clicks__quarantine anew, where rows of the job 'clean__ingest' are, too; plan a rebuild: headwater "
        "backfill plan JOB --rebuild"
    )


def test_repairs_that_come_undone_and_what_halts_the_job_are_noted() -> None:
    known = history(
        *BATCHES[:2], repair("swap"), repair("swap", "two"), repair("rollback", "two"), *BATCHES[2:]
    )
    differs = Difference("state", "one", "another", "rebuild", "so it is")
    undone, halts = rewound(known, 1, differences=[differs]).notes
    assert undone == "the repair one, swapped in with version 3, is undone, too"
    assert halts.startswith("put back there, job 'clean' cannot go on from its last run: state: one before")
    before = history(BATCHES[0], repair("swap"), BATCHES[1], repair("rollback"), BATCHES[2])
    [again] = rewound(before, 1, version=3, at=BATCHES[1]).notes
    assert again == "the repair one, rolled back with version 4, is in effect again"


def test_decision_can_be_followed() -> None:
    assert walks_far(rewound) is None
