"""The runs that the offsets of a batch belong to."""

from headwater_streams.sources.mirrored import MirrorMap, MirrorRecord, Runs, TopicRecord
from headwater_streams.sources.origins import OriginRun, runs_within


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


def test_mirror_origins_of_the_last_run_reach_to_the_end() -> None:
    ranges = {"east:w.clicks": {0: (25, 30)}}

    assert runs_within(kept(), ranges, {"east:w.clicks": "w.clicks"}) == [run(25, 30, 120)]


def test_mirror_origins_of_no_offsets_are_none() -> None:
    assert runs_within(kept(), {"east:w.clicks": {0: (5, 5)}}, {"east:w.clicks": "w.clicks"}) == []
