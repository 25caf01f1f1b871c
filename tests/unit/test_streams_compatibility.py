"""What differs between a job and its last run, and what can be done about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from headwater_streams.base.errors import DataLossError, IncompatibleStateError
from headwater_streams.runtime.compatibility import (
    Difference,
    Remedy,
    compare,
    newer_schemas,
    remedy_of,
    require_compatible,
)
from headwater_streams.runtime.facts import keep_facts
from headwater_streams.runtime.positions import check_positions
from headwater_streams.sources.topic_metadata import changed_ids
from headwater_streams.spark.run_facts import InputFacts, RunFacts, facts_of_last_run

INPUT = InputFacts(kind="topic", ids={"clicks": "id-1"}, watermark="10 minutes", columns={"n": "int"})
ROW = RunFacts(
    spark="4.1.3", kind="row", targets={"silver.clicks": "table-1"}, keys=(), mode="append",
    inputs={"clicks": INPUT}, operator="", state=(), columns={"n": "int"}, shuffle_partitions="2",
    state_store="org.apache.HDFSBackedStateStoreProvider", dedup="None", fingerprint="aa",
)  # fmt: skip
WINDOW = replace(
    ROW, kind="window", mode="update", keys=("n",), operator="TumblingWindow(1)", state=("Aggregate(sum(n))",)
)

BOTH = {"silver.clicks": "table-1", "silver.bots": "table-2"}
FANNED = replace(ROW, targets=BOTH)
SEVERAL = replace(INPUT, ids={"clicks": "id-1", "taps": "id-9"})
TABLE = InputFacts(kind="table", ids={"silver.a": "x"}, watermark=None, columns={})


def _reading(declared: InputFacts) -> RunFacts:
    return replace(ROW, inputs={"clicks": declared})


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (ROW, ROW, []),
        (ROW, replace(ROW, kind="window"), [("kind", "rebuild")]),
        (ROW, replace(ROW, targets={"silver.others": "table-1"}), [("target", "rebuild")]),
        (ROW, replace(ROW, targets={"silver.clicks": "table-2"}), [("the table silver.clicks", "rebuild")]),
        (ROW, replace(ROW, targets={"silver.clicks": None}), [("the table silver.clicks", "rebuild")]),
        (FANNED, FANNED, []),
        (FANNED, replace(FANNED, targets={**BOTH, "silver.bots": None}), [("the table silver.bots", "rebuild")]),
        (FANNED, replace(FANNED, targets=dict(reversed(BOTH.items()))), [("target", "rebuild")]),
        (FANNED, ROW, [("target", "keep")]),
        (ROW, FANNED, [("target", "rebuild")]),
        (ROW, replace(ROW, keys=("n",)), []),
        (ROW, replace(ROW, spark="4.2.0"), [("Spark", "keep")]),
        (ROW, replace(ROW, spark="4.1.9"), []),
        (ROW, replace(ROW, spark="4.0.1"), [("Spark", "rebuild")]),
        (ROW, replace(ROW, inputs={"other": INPUT}), []),
        (ROW, replace(ROW, inputs={"clicks": replace(INPUT, ids={"b": None})}), [("inputs", "renew")]),
        (ROW, _reading(replace(INPUT, ids={"clicks": "id-2"})), [("the topic clicks", "renew")]),
        (ROW, _reading(replace(INPUT, ids={"clicks": None})), []),
        (ROW, _reading(SEVERAL), [("inputs", "renew")]),
        (_reading(SEVERAL), ROW, [("inputs", "renew")]),
        (_reading(SEVERAL), _reading(SEVERAL), []),
        (
            _reading(SEVERAL),
            _reading(replace(SEVERAL, ids={"clicks": "id-1", "taps": "id-8"})),
            [("the topic taps", "renew")],
        ),
        (_reading(TABLE), _reading(replace(TABLE, ids={"silver.a": "y"})), [("the table silver.a", "rebuild")]),
        (_reading(TABLE), ROW, [("inputs", "renew")]),
        (ROW, replace(ROW, inputs={"clicks": replace(INPUT, watermark="1 hour")}), []),
        (ROW, replace(ROW, columns={"n": "bigint"}), [("column n", "keep")]),
        (ROW, replace(ROW, columns={"m": "int"}), [("columns", "keep"), ("columns", "keep")]),
        (ROW, replace(ROW, shuffle_partitions="8", state_store="x.RocksDB"), []),
        (ROW, replace(ROW, fingerprint="bb"), [("function or declaration", "keep")]),
        (ROW, replace(ROW, dedup="ByOffset()", fingerprint="bb"), [("deduplication", "keep")]),
        (WINDOW, replace(WINDOW, keys=("n", "m")), [("target keys", "rebuild")]),
        (WINDOW, replace(WINDOW, operator="TumblingWindow(2)"), [("operator", "rebuild")]),
        (WINDOW, replace(WINDOW, state=("Aggregate(sum(m))",)), [("state", "rebuild")]),
        (WINDOW, replace(WINDOW, shuffle_partitions="8"), [("shuffle partitions", "keep")]),
        (WINDOW, replace(WINDOW, state_store="x.RocksDB"), [("state store", "keep")]),
        (
            WINDOW,
            replace(WINDOW, inputs={"clicks": replace(INPUT, watermark="1 hour")}),
            [("watermark of topic clicks", "rebuild")],
        ),
        (
            WINDOW,
            replace(WINDOW, inputs={"clicks": replace(INPUT, watermark="1 minute")}),
            [("watermark of topic clicks", "keep")],
        ),
        (
            WINDOW,
            replace(WINDOW, inputs={"clicks": replace(INPUT, ids={"clicks": "id-2"})}),
            [("the topic clicks", "rebuild")],
        ),
    ],
)  # fmt: skip
def test_compare_difference_names_the_thing_and_its_remedy(
    before: RunFacts, now: RunFacts, found: list[tuple[str, str]]
) -> None:
    assert [(each.what, each.remedy) for each in compare(before, now)] == found


def test_compare_long_plans_show_where_they_differ() -> None:
    def state(*expressions: str, more: tuple[str, ...] = ()) -> RunFacts:
        return replace(WINDOW, state=(f"Aggregate({', '.join(expressions)})", *more))

    same = [f"max(a_column_with_a_name_{number}) int" for number in range(50)]
    (found,) = compare(state(*same, "sum(n) bigint", *same), state(*same, "sum(n + 1) bigint", *same))
    begin = "Aggregate(... max(a_column_with_a_name_49) int, sum(n"
    assert found.before.startswith(f"{begin}) bigint, max(a_column")
    assert found.now.startswith(f"{begin} + 1) bigint, max(a_column")
    (added,) = compare(state("n"), state("n", more=("Join(a)", "Window(" + "b" * 500 + ")")))
    assert added.before == "nothing"
    assert added.now == "Join(a); and 1 more"
    (other,) = compare(state(*same), replace(WINDOW, state=("Join(x)",)))
    assert other.before.startswith("Aggregate(max(a_column_with_a_name_0) int, ")
    for text in (found.before, found.now, other.before):
        assert len(text) < 230
        assert text.endswith(" ...")


OWN = "carrier string, window struct<start:timestamp,end:timestamp>"


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (
            "max(least(delay, 100)) AS max_delay int, count(1) AS n bigint",
            "max(delay) AS max_delay int, count(1) AS n bigint",
            ("max_delay = max(least(delay, 100))", "max_delay = max(delay)"),
        ),
        ("count(1) AS n bigint", "count(1) AS n bigint, sum(d) AS s bigint", ("no s", "s = sum(d)")),
        ("sum(d) AS `the s` bigint", "count(1) AS n bigint", ("the s = sum(d), no n", "no the s, n = count(1)")),
        ("max(d) AS d int", "max(d) AS d bigint", ("d = max(d) (int)", "d = max(d) (bigint)")),
        (
            "max(CASE WHEN (a < 3) THEN CAST(b AS INT) END) AS d int",
            "max(CASE WHEN (a <= 3) THEN CAST(b AS INT) END) AS d int",
            (
                "d = max(CASE WHEN (a < 3) THEN CAST(b AS INT) END)",
                "d = max(CASE WHEN (a <= 3) THEN CAST(b AS INT) END)",
            ),
        ),
        (
            "max(x) FILTER (WHERE y = 'a, (b') AS d int",
            "max(x) AS d int",
            ("d = max(x) FILTER (WHERE y = 'a, (b')", "d = max(x)"),
        ),
    ],
)  # fmt: skip
def test_compare_names_the_aggregates_that_differ(before: str, now: str, told: tuple[str, str]) -> None:
    old, new = (replace(WINDOW, state=(f"Aggregate({OWN}, {each})",)) for each in (before, now))
    (found,) = compare(old, new)
    assert (found.what, found.before, found.now) == ("state", *told)


def test_compare_strongest_remedy_wins_and_only_what_needs_it_is_told() -> None:
    differences = compare(
        ROW, replace(ROW, spark="4.2.0", targets={"silver.clicks": "other"}, fingerprint="bb")
    )
    assert remedy_of(differences) == "rebuild"
    with pytest.raises(IncompatibleStateError) as refused:
        require_compatible("clean", differences)
    assert str(refused.value) == (
        "job 'clean' cannot go on from its last run: the table silver.clicks: the job's own before, another table of "
        "that name now; it lacks what the job has read so far. What can be done: put it back, or build the table "
        "again: beside the live one with headwater backfill plan clean --rebuild, or from empty with headwater jobs "
        "rebuild clean"
    )
    require_compatible("clean", compare(ROW, replace(ROW, spark="4.2.0")))


@pytest.mark.parametrize(
    ("part", "remedy", "told"),
    [
        ("x__step_1", "renew", "headwater jobs renew x"),
        ("x__step_2__ingest_clicks", "renew", "headwater jobs renew x"),
        (
            "x__step_1",
            "rebuild",
            (
                "put it back, or build its tables again: beside the live ones with headwater backfill plan x "
                "--rebuild, which says what comes first, or from empty with headwater jobs rebuild x"
            ),
        ),
        ("x__ingest_step_1", "rebuild", "from empty with headwater jobs rebuild x"),
        ("x__ingest_union", "rebuild", "from empty with headwater jobs rebuild x"),
    ],
)
def test_remedy_of_a_part_is_the_job_s(part: str, remedy: Remedy, told: str) -> None:
    with pytest.raises(IncompatibleStateError) as refused:
        require_compatible(part, [Difference("state", "a", "b", remedy, "so it is")])
    assert str(refused.value).endswith(told)


def test_compare_where_a_warm_up_can_give_the_state_renewing_mends_what_only_the_state_needs() -> None:
    older = compare(WINDOW, replace(WINDOW, spark="4.0.1"), renewable=True)
    assert [(each.what, each.remedy) for each in older] == [("Spark", "renew")]
    (pieces,) = compare(WINDOW, replace(WINDOW, shuffle_partitions="9"), renewable=True)
    assert pieces.remedy == "keep"
    assert pieces.why == "the checkpoint's 2 stay in effect until a new generation, headwater jobs renew"
    (state,) = compare(WINDOW, replace(WINDOW, state=("Aggregate(max(n))",)), renewable=True)
    assert state.remedy == "rebuild"
    assert state.why.endswith("where the new ones give the same, headwater jobs renew keeps the table's rows")


def test_facts_of_last_run_are_those_kept_and_what_the_checkpoint_holds_on_to_stays(tmp_path: Path) -> None:
    keep_facts(tmp_path, WINDOW)
    assert facts_of_last_run(tmp_path) is None, "no batch has begun"
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    assert facts_of_last_run(tmp_path) == WINDOW
    unknown = {"clicks": replace(INPUT, ids={"clicks": None})}
    kept = keep_facts(
        tmp_path, replace(WINDOW, shuffle_partitions="9", state_store="x", inputs=unknown, spark="4.2.0")
    )
    assert kept == replace(WINDOW, spark="4.2.0") == facts_of_last_run(tmp_path)


@pytest.mark.parametrize(
    ("known", "now", "changed"),
    [
        ({"a": "1"}, {"a": "1"}, {}),
        ({"a": "1"}, {"a": "2"}, {"a": ("1", "2")}),
        ({"a": None}, {"a": "2"}, {}),
        ({"a": "1"}, {"a": None}, {}),
        ({"a": "1"}, {}, {}),
        ({}, {"a": "2"}, {}),
        ({"a": "1", "b": "1"}, {"b": "2", "a": "1"}, {"b": ("1", "2")}),
    ],
)
def test_ids_differ_where_both_are_known(
    known: dict[str, str | None], now: dict[str, str | None], changed: dict[str, tuple[str, str]]
) -> None:
    assert changed_ids(known, now) == changed


def test_topic_made_again_of_a_job_that_cannot_be_renewed_is_not_sent_to_a_backfill() -> None:
    other = replace(WINDOW, inputs={"clicks": replace(INPUT, ids={"clicks": "id-2"})})
    told = r"the topic clicks: id-1 before, id-2 now.* from empty: headwater jobs rebuild hours$"
    with pytest.raises(IncompatibleStateError, match=told) as refused:
        require_compatible("hours", compare(WINDOW, other))
    assert "backfill" not in str(refused.value)
    assert "put it back" not in str(refused.value), "it would have another id again"
    with pytest.raises(IncompatibleStateError) as refused:
        require_compatible("clean", compare(ROW, _reading(replace(INPUT, ids={"clicks": "id-2"}))))
    assert str(refused.value).endswith(
        "What can be done: begin a new generation that keeps the table's rows and reads the new topic from its "
        "beginning: headwater jobs renew clean"
    )


def test_positions_that_are_there_pass() -> None:
    check_positions("j", "clicks", {0: 5, 1: 10}, {0: (5, 5), 1: (0, 10), 2: (3, 3)})
    check_positions("j", "clicks", {}, {0: (5, 9)})


def test_positions_overtaken_by_retention_are_named_as_ranges() -> None:
    with pytest.raises(DataLossError) as lost:
        check_positions("j", "clicks", {0: 5, 1: 10, 2: 7}, {0: (9, 20), 1: (0, 10), 2: (30, 30)})
    assert "removed by the topic's retention: partition 0 offsets [5, 9); partition 2 offsets [7, 30)" in str(
        lost.value
    )


def test_positions_beyond_the_end_mean_another_topic() -> None:
    with pytest.raises(DataLossError, match=r"partition 1 ends at 4 and the job has read to 10.*made again"):
        check_positions("j", "clicks", {0: 5, 1: 10}, {0: (0, 5), 1: (0, 4)})
    with pytest.raises(DataLossError, match="partition 1 ends at 0"):
        check_positions("j", "clicks", {1: 10}, {0: (0, 5)})


def test_what_a_newer_schema_of_a_registry_changes_is_said_by_column() -> None:
    before = _reading(replace(INPUT, columns={"id": "bigint", "cents": "int", "old": "string"}))
    now = _reading(replace(INPUT, columns={"id": "bigint", "cents": "bigint", "currency": "string"}))
    (difference,) = newer_schemas(before, now, {"clicks": "clicks-value"})
    assert (difference.what, difference.before, difference.now, difference.remedy) == (
        "schema clicks-value",
        "cents int, old string, no currency",
        "cents bigint, no old, currency string",
        "keep",
    )
    assert newer_schemas(now, now, {"clicks": "clicks-value"}) == []
    assert newer_schemas(before, now, {}) == []
    assert newer_schemas(before, now, {"another": "clicks-value"}) == []
