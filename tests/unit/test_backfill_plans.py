"""Backfills without Spark: ranges as people write them, plans as they are stored, history as the ledger tells it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from damaged_files import DAMAGES
from headwater.cli import main
from headwater.cli._backfill import parse_offsets
from headwater.cli._backfill_run import hint_on_interrupt
from headwater.errors import UsageError
from headwater_streams.backfill.history import read_history, require_none_half_done
from headwater_streams.backfill.progress import Progress
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, FurtherTable, PinnedInput
from headwater_streams.backfill.results import RollbackResult, SwapResult
from headwater_streams.backfill.rewind.sides import repaired_sides, why_not_undone
from headwater_streams.backfill.status import list_backfills, pause, status
from headwater_streams.backfill.store import BackfillError, BackfillFolder, stored
from headwater_streams.backfill.values import LiveBatchId, micros
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, intersection
from headwater_streams.base.moments import iso
from headwater_streams.ledger.repairs import half_done
from headwater_streams.plan.job import bind
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.home import Home
from record_examples import EXAMPLES

clicks = hw.topic("clicks", schema="n INT")


@hw.job(target=hw.delta("silver.a"))
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


def plan_of(**changes: Any) -> BackfillPlan:
    hour = micros("2013-01-01T10:00:00Z")
    ranges = {"departures": {0: (3, 9)}}
    batches = (LiveBatchId(generation=1, batch=4, ranges=ranges),)
    values: dict[str, Any] = {
        "id": "delays-1",
        "job": "delays",
        "reference": "jobs/flights.py:delays",
        "kind": "window",
        "target": "gold.delays",
        "quarantine": "gold.delays__quarantine",
        "input_name": "departed",
        "keys": ("carrier", "window_start"),
        "columns": ("carrier", "window_start", "departures"),
        "fingerprint": "f",
        "asked": {"all": True},
        "ranges": ranges,
        "windows": ((hour, hour + 1),),
        "rows": 6,
        "chunks": (Chunk(number=0, rows=6, span=(hour, hour + 1)), Chunk(number=1, rows=6, batches=batches)),
        "base_version": 7,
        "generation": 1,
        "batch": 6,
        "pinned": PinnedInput(table="silver.departures", version=5, until=(1, 4), was_rewritten=False),
        "notes": ("a note",),
        "created_at": "2013-02-01T00:00:00Z",
    }
    return BackfillPlan(**{**values, **changes})


def log(table: Path, *entries: LedgerEntry) -> None:
    (table / "_delta_log").mkdir(parents=True)
    for version, entry in enumerate(entries):
        action = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "userMetadata": entry.to_json()}}
        (table / "_delta_log" / f"{version:020}.json").write_text(json.dumps(action))


def batch_entry(batch: int, start: int, end: int, **more: Any) -> LedgerEntry:
    source = SourceRange(input="departures", ranges={"departures": {0: (start, end)}}, topic="departures")
    accounting = {"departures": {"read": end - start}}
    return LedgerEntry(
        job="clean",
        generation=1,
        batch=batch,
        table="silver.departures",
        kind="row",
        sources=(source,),
        accounting=accounting,
        **more,
    )


def backfill_entry(name: str, action: str, until: int) -> LedgerEntry:
    windows = [["2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"]]
    extra = {"backfill": name, "action": action, "windows": windows, "until": [1, until]}
    return LedgerEntry(
        job="clean", generation=1, batch=1, table="silver.departures", kind="backfill", extra=extra
    )


def test_plan_stored_and_read_back_is_the_same() -> None:
    planned = plan_of()
    assert BackfillPlan.from_json(json.loads(json.dumps(planned.to_json()))) == planned


def test_plan_of_several_tables_is_read_back_in_their_order_and_one_of_before_has_none() -> None:
    further = {
        "silver.z": FurtherTable(columns=("b",), base_version=3),
        "silver.a": FurtherTable(columns=("c", "d"), base_version=4),
    }
    planned = plan_of(kind="row", windows=(), pinned=None, target="silver.p", further=further)
    assert BackfillPlan.from_json(json.loads(json.dumps(planned.to_json()))) == planned
    assert planned.tables == ("gold.delays__quarantine", "silver.z", "silver.a", "silver.p")
    told = [(name, part.columns, part.base_version, part.tables[1:]) for name, part in planned.parts.items()]
    assert told[1:] == [("silver.z", ("b",), 3, ("silver.z",)), ("silver.a", ("c", "d"), 4, ("silver.a",))]
    assert "further" not in plan_of().to_json()


def test_table_of_rows_that_are_several_to_a_record_has_keys_of_its_own() -> None:
    place = ("_topic", "_partition", "_offset")
    further = {
        "silver.lines": FurtherTable(columns=("b",), base_version=3, keys=(*place, "_row")),
        "silver.bots": FurtherTable(columns=("b",), base_version=3),
    }
    planned = plan_of(
        kind="row", windows=(), pinned=None, target="silver.orders", keys=place, further=further
    )
    assert {name: part.keys for name, part in planned.parts.items()} == {
        "silver.orders": place, "silver.lines": (*place, "_row"), "silver.bots": place,
    }  # fmt: skip
    assert BackfillPlan.from_json(planned.to_json()) == planned
    assert "keys" not in planned.to_json()["further"][1], "an older Headwater reads a plan of before"


HALVES: list[tuple[dict[str, str], tuple[str, str, bool] | None]] = [
    ({}, None),
    ({"b": "s"}, ("b", "a", False)),
    ({"q": "s"}, ("q", "a", False)),
    ({"q": "s", "b": "s", "a": "s"}, None),
    ({"q": "s", "a": "s"}, None),  # the other table had nothing in the range
    ({"q": "sr", "b": "s"}, ("q", "b", True)),
    ({"q": "sr", "b": "sr"}, None),
    ({"q": "sr", "b": "sr", "a": "s"}, ("q", "a", True)),
    ({"q": "sr", "b": "sr", "a": "sr"}, None),
]


@pytest.mark.parametrize(("actions", "expected"), HALVES)
def test_repair_that_stopped_between_two_tables_is_told(
    actions: dict[str, str], expected: tuple[str, str, bool] | None, tmp_path: Path
) -> None:
    home, words = Home(tmp_path), {"s": "swap", "r": "rollback"}
    for name in ("q", "b", "a"):
        made = [backfill_entry("one", words[each], 3) for each in actions.get(name, "")]
        log(home.table(f"silver.{name}"), batch_entry(0, 0, 4), *made)
    found = half_done(home, "silver.a", ("silver.q", "silver.b"))
    told = None if found is None else (found.name[-1], found.other[-1], found.is_back)
    assert told == expected
    assert half_done(home, "silver.a", ("silver.q", "silver.b"), but="one") is None
    if expected is not None:
        remedy = "roll that one back again" if expected[2] else "swap that one in, or roll it back"
        with pytest.raises(BackfillError, match=rf"'one' has changed .* yet; {remedy}, first"):
            require_none_half_done(home, "silver.a", ("silver.q", "silver.b"))


def test_repair_of_a_generation_before_the_tables_were_emptied_is_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home.table("silver.q"), batch_entry(0, 0, 4), backfill_entry("one", "swap", 3))
    begun = LedgerEntry(
        job="clean", generation=2, batch=-1, table="silver.a", kind="generation", extra={"action": "rebuild"}
    )
    log(home.table("silver.a"), batch_entry(0, 0, 4), backfill_entry("one", "swap", 3), begun)
    assert half_done(home, "silver.a", ("silver.q",)) is None


def test_rewind_behind_a_repair_of_a_shared_side_table_is_refused(tmp_path: Path) -> None:
    home, job = Home(tmp_path), bind(clean)
    side, repairs = home.table("silver.a__quarantine"), {"one": {"swap": 1}}
    log(side, batch_entry(0, 0, 4), backfill_entry("one", "swap", 3))
    assert why_not_undone(repaired_sides(home, job, repairs, 0)) is None
    shutil.rmtree(side)
    ingest = replace(batch_entry(0, 0, 4), job="clean__ingest_clicks")
    log(side, batch_entry(0, 0, 4), ingest, backfill_entry("one", "swap", 3))
    told = why_not_undone(repaired_sides(home, job, repairs, 0))
    assert told is not None
    assert told.startswith(
        "it was repaired by one since, which wrote silver.a__quarantine anew, where rows of the job"
    )
    assert why_not_undone(repaired_sides(home, job, repairs, 1)) is None, "it came before"
    shutil.rmtree(side)
    restored = LedgerEntry(
        job="clean", generation=2, batch=0, table=side.name, kind="generation", extra={"restored_version": 0}
    )
    log(side, batch_entry(0, 0, 4), ingest, restored, backfill_entry("one", "swap", 3))
    assert why_not_undone(repaired_sides(home, job, repairs, 0)) == told, (
        "the other job's rows were not taken back"
    )


def test_times_go_there_and_back_to_the_microsecond() -> None:
    for text in ("2013-01-01T10:00:00Z", "1969-12-31T23:59:59.999999Z", "2013-01-01T10:00:00.000001Z"):
        assert iso(micros(text)) == text
    assert micros("2013-01-01T10:00:00+02:00") == micros("2013-01-01T08:00:00")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (({"t": {0: (3, 3)}}, None, None, None), r"t 0: \[3, 3\) is no range of offsets"),
        (({}, None, None, None), "no offsets are given"),
        (
            (None, ("2013-01-02", "2013-01-01"), None, None),
            "timestamps: .* holds nothing; the end is exclusive",
        ),
        ((None, None, ("noon", "2013-01-01"), None), "event time: .*; write 2013-01-01T10:00:00Z"),
        ((None, ("2013-01-01", "2013-01-02"), None, 3), "give one of"),
    ],
)
def test_selection_that_cannot_be_meant_is_one_sentence(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(BackfillError, match=sentence):
        Selection.of(*arguments)


def test_history_offset_read_again_belongs_to_its_first_batch(tmp_path: Path) -> None:
    log(
        tmp_path,
        batch_entry(0, 0, 4, seen={"k": [(0, 4)]}, max_event_time_us=5),
        batch_entry(1, 2, 9),
        batch_entry(2, 2, 5),
    )
    first, second = read_history(tmp_path, "silver.departures", "clean").batches()
    assert (first.id.ranges, first.seen, first.max_event_time_us) == ({"departures": {0: (0, 4)}}, None, None)
    assert second.id.ranges == {"departures": {0: (4, 9)}}
    assert (second.seen, second.max_event_time_us) == ({"k": [(0, 4)]}, 5)


def test_history_rolled_back_backfill_folded_nothing(tmp_path: Path) -> None:
    log(
        tmp_path,
        batch_entry(0, 0, 4),
        backfill_entry("one", "swap", 3),
        backfill_entry("two", "swap", 5),
        backfill_entry("two", "rollback", 5),
    )
    history = read_history(tmp_path, "silver.departures", "clean")
    assert [found.until for found in history.folded()] == [(1, 3)]
    assert sorted(history.backfill("two")) == ["rollback", "swap"]
    assert history.last_entry().kind == "row"


def test_history_of_no_table_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BackfillError, match=r"there is no table silver\.departures, so"):
        read_history(tmp_path, "silver.departures", "clean")


def test_intersection_of_ranges_leaves_out_what_is_empty() -> None:
    one, other = {"t": {0: (0, 5), 1: (0, 5)}}, {"t": {0: (3, 9), 1: (5, 9)}, "u": {0: (0, 1)}}
    assert intersection(one, other) == {"t": {0: (3, 5)}}


def test_status_planned_then_paused_and_a_second_process_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home.table("gold.delays"), batch_entry(0, 0, 4))
    folder = BackfillFolder(home, "delays-1")
    folder.write(plan_of())
    assert status(home, "delays-1")["state"] == "planned"
    assert pause(home, "delays-1")["state"] == "paused"
    assert [found["id"] for found in list_backfills(home)] == ["delays-1"]
    with (
        folder.held(),
        pytest.raises(BackfillError, match="another process works on the backfill 'delays-1'"),
        BackfillFolder(home, "delays-1").held(),
    ):
        pass


@pytest.mark.parametrize(("actions", "state"), [(["swap"], "swapped"), (["swap", "rollback"], "rolled back")])
def test_pause_of_what_was_swapped_in_is_refused(actions: list[str], state: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    entries = [backfill_entry("delays-1", action, 4) for action in actions]
    log(home.table("gold.delays"), batch_entry(0, 0, 4), *entries)
    BackfillFolder(home, "delays-1").write(plan_of())
    assert status(home, "delays-1")["state"] == state
    with pytest.raises(BackfillError, match=f"'delays-1' is {state}, and has nothing to pause"):
        pause(home, "delays-1")


def test_run_that_is_stopped_says_how_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), hint_on_interrupt("delays-1"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "headwater: stopped; what is left: headwater backfill run delays-1\n"


def test_parse_offsets_reads_several_partitions() -> None:
    found = parse_offsets(["a:b:0=3-9", "a:b:1=0-2"])
    assert found == {"a:b": {0: (3, 9), 1: (0, 2)}}
    with pytest.raises(UsageError, match="partition 0 of t is given twice"):
        parse_offsets(["t:0=1-2", "t:0=3-4"])
    with pytest.raises(UsageError, match="write TOPIC:PARTITION=START-END"):
        parse_offsets(["t=1-2"])


@pytest.mark.parametrize(
    ("arguments", "exit_status", "sentence"),
    [
        (["plan", "jobs/flights.py:clean_departures"], 2, "say which range: give one of --offsets"),
        (
            ["plan", "jobs/flights.py:clean_departures", "--start", "2013-01-01"],
            2,
            "--start and --end together",
        ),
        (["plan", "jobs/flights.py", "--all"], 2, "has several jobs"),
        (["plan", "jobs/nothing.py", "--all"], 2, "no job module 'jobs/nothing.py'"),
        (["status", "x"], 2, "there is no backfill 'x'; there are none (make one with plan)"),
        (["run", "x"], 2, "there is no backfill 'x'"),
        (["pause", "x"], 2, "there is no backfill 'x'"),
        (["abort", "x"], 2, "there is no backfill 'x'"),
        (["swap", "x"], 2, "there is no backfill 'x'"),
        (["versions", "nothing"], 2, "no job or module 'nothing': "),
        (["rollback", "x"], 2, "there is no backfill 'x'"),
        (
            ["plan", "jobs/flights.py:clean_departures", "--all", "--rebuild"],
            2,
            "give only one of --offsets, --start and --end",
        ),
        (
            ["plan", "jobs/flights.py:clean_departures", "--offsets", "departures:0:1-2"],
            2,
            "write TOPIC:PARTITION=START-END",
        ),
        (
            ["plan", "jobs/flights.py:clean_departures", "--offsets", "departures:0=2-1"],
            2,
            "[2, 1) is no range of offsets",
        ),
        (
            ["plan", "jobs/flights.py:clean_departures", "--event-time", "2013-01-02", "today"],
            2,
            "write 2013-01-01T10:00:00Z",
        ),
    ],
)
def test_backfill_verb_mistake_is_one_sentence(
    arguments: list[str],
    exit_status: int,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path))  # no jars: what is told is told before Spark starts
    assert main(["backfill", *arguments, "--home", str(tmp_path)]) == exit_status
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_backfill_list_of_an_empty_home_is_an_empty_array(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backfill", "list", "--json", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_plan_of_a_job_whose_file_was_moved_says_where_it_is_now(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = stored(home, plan_of(id="", reference="/jobs/sales.py:delays"), 0)
    again = stored(home, plan_of(id="", reference="/jobs/moved.py:delays"), 1)
    assert again.id == first.id
    assert BackfillFolder(home, first.id).plan().reference == "/jobs/moved.py:delays"
    assert stored(home, plan_of(id="", reference=""), 2).reference == "/jobs/moved.py:delays"


@pytest.mark.parametrize("number", ["1762041600000", "1762041600", "2013"])
def test_number_is_no_moment(number: str) -> None:
    with pytest.raises(
        BackfillError, match=f"^timestamps: '{number}' is a number and no time; write 2013-01-01T"
    ):
        Selection.of(None, (number, "2013-01-01"), None, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((1793494800, 1793500000), "timestamps: 1793494800 is no time; write 2013-01-01T"),
        (("yesterday", "today"), "timestamps: 'yesterday' is no time of ISO 8601; write 2013-01-01T"),
        ("2026-11-01", r"timestamps: '2026-11-01' is not a pair of times, \(start, end\)"),
    ],
)
def test_times_of_another_kind_are_told_in_a_sentence(given: Any, told: str) -> None:
    with pytest.raises(BackfillError, match=f"^{told}"):
        Selection.of(None, given, None, None)


FILES: dict[Any, str] = {
    Progress: "headwater backfill run delays-1",
    Verdict: "headwater backfill verify delays-1",
    SwapResult: "headwater backfill swap delays-1",
    RollbackResult: "headwater backfill rollback delays-1",
}
"""What each file of a backfill is written again by."""


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"gone"}))
@pytest.mark.parametrize("record", FILES)
def test_damaged_file_of_a_backfill_is_told_with_what_writes_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: Any, damage: str
) -> None:
    home = Home(tmp_path)
    log(home.table("gold.delays"), batch_entry(0, 0, 4))
    for backfill in ("delays-1", "delays-2"):
        BackfillFolder(home, backfill).write(plan_of(id=backfill))
    folder = BackfillFolder(home, "delays-1")
    folder.write(next(iter(EXAMPLES[record].values())))  # type: ignore[arg-type]
    path = folder.path / f"{record.FILE}.json"
    DAMAGES[damage](path)
    assert folder.known(record) is None, "the verb that writes it is not kept from it"
    with pytest.raises(DamagedFileError) as told:
        status(home, "delays-1")
    assert str(told.value).startswith(f"the backfill 'delays-1': {path} is ")
    assert str(told.value).endswith(f"; it is written again by {FILES[record]}")
    assert main(["backfill", "list", "--json", "--home", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert [each["id"] for each in json.loads(printed.out)] == ["delays-2"]
    assert printed.err == f"headwater: {told.value}\n"


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_plan_is_told_and_the_others_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    home = Home(tmp_path)
    log(home.table("gold.delays"), batch_entry(0, 0, 4))
    for backfill in ("delays-1", "delays-2"):
        BackfillFolder(home, backfill).write(plan_of(id=backfill))
    folder = BackfillFolder(home, "delays-1")
    folder.shadow.mkdir()
    path = folder.path / "plan.json"
    DAMAGES[damage](path)
    verbs = ["status", "verify", "swap", "rollback", "abort", "pause", "resume", "run", "preview"]
    for verb in verbs:
        assert main(["backfill", verb, "delays-1", "--home", str(tmp_path)]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"headwater: the backfill 'delays-1': {path} is "), verb
        assert told.endswith(f"if it was not swapped in, remove the folder {folder.path} and plan it again\n")
        assert "Traceback" not in told
    assert main(["backfill", "list", "--json", "--home", str(tmp_path)]) == 1
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == ["delays-2"]
    shutil.rmtree(folder.path)
    assert main(["backfill", "list", "--json", "--home", str(tmp_path)]) == 0
