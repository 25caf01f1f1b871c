"""The runs that the offsets of a batch belong to."""

from dataclasses import replace

from headwater_streams.sources.mirrored import MirrorMap, MirrorRecord, Runs, TopicRecord
from headwater_streams.sources.origins import OriginRun, in_blocks, runs_within


def kept() -> MirrorMap:
    return MirrorMap(
        mirrors={"W": MirrorRecord(source="W", name="west", producer_id=1, producer_epoch=0)},
        topics={
            "w.clicks": TopicRecord(
                name="w.clicks", source="W", topic="clicks", topic_id="", origin="clicks", via=("W",)
            )
        },
        runs={("w.clicks", 0): Runs([(0, 100), (10, 120), (20, 140)])},
    )


def run(start: int, end: int, ahead: int) -> OriginRun:
    return OriginRun("east:w.clicks", 0, start, end, "west", "clicks", ahead)


def test_mirror_origins_are_the_runs_of_the_offsets_that_are_read() -> None:
    names = {"east:w.clicks": "w.clicks", "east:other": "other"}

    found = runs_within(kept(), {"east:w.clicks": {0: (5, 12), 1: (0, 9)}, "east:other": {0: (0, 9)}}, names)

    assert found == [run(5, 10, 100), run(10, 12, 110)]


def test_mirror_origins_of_a_topic_that_others_made_after_the_mirror_was_deleted_are_none() -> None:
    found, names = kept(), {"east:w.clicks": "w.clicks"}
    found.topics["w.clicks"] = replace(found.topics["w.clicks"], here_id="a-_b")
    ranges = {"east:w.clicks": {0: (25, 30)}}

    assert runs_within(found, ranges, names, lambda _: "other") == []
    for known in (
        "a-_b",
        "a+/b",
        None,
    ):  # as Kafka shows it, as librdkafka does, and of brokers that give none
        assert runs_within(found, ranges, names, lambda _, known=known: known) == [run(25, 30, 120)]


def test_mirror_origins_of_the_last_run_reach_to_the_end() -> None:
    ranges = {"east:w.clicks": {0: (25, 30)}}

    assert runs_within(kept(), ranges, {"east:w.clicks": "w.clicks"}) == [run(25, 30, 120)]


def test_mirror_origins_of_what_others_wrote_once_the_topic_was_released_are_none() -> None:
    found = kept()
    found.topics["w.clicks"] = replace(found.topics["w.clicks"], released={0: 22})
    ranges, names = {"w.clicks": {0: (15, 30), 1: (0, 5)}}, {"w.clicks": "w.clicks"}

    assert [(each.start, each.end) for each in runs_within(found, ranges, names)] == [(15, 20), (20, 22)]
    assert runs_within(found, {"w.clicks": {0: (22, 30)}}, names) == []


def test_mirror_origins_of_no_offsets_are_none() -> None:
    assert runs_within(kept(), {"east:w.clicks": {0: (5, 5)}}, {"east:w.clicks": "w.clicks"}) == []


def test_mirror_origins_of_one_long_run_are_in_two_blocks_at_most() -> None:
    bits, blocks = in_blocks([run(1_000, 51_000, 7)])

    assert len(blocks) <= 2
    assert {each >> bits for each in (1_000, 50_999)} == {block for block, _ in blocks}


def test_mirror_origins_of_many_runs_are_found_in_the_block_of_each_record() -> None:
    runs = [run(start, start + 3, start) for start in range(0, 3_000, 3)] + [run(3_000, 9_000, 5_000)]

    bits, blocks = in_blocks(runs)

    by_block: dict[int, list[OriginRun]] = {}
    for block, each in blocks:
        by_block.setdefault(block, []).append(each)
    assert len(blocks) < 3 * len(runs)
    assert max(map(len, by_block.values())) < 20
    for offset in range(9_000):
        (found,) = [each for each in by_block[offset >> bits] if each.start <= offset < each.end]
        assert found.start <= offset < found.end
