"""What a job reads next of a topic, told from its checkpoint and its table."""

import json
from pathlib import Path

from headwater_streams.runtime.positions import next_offsets
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.reader import KafkaSource

SOURCE = KafkaSource("")
CLICKS = TopicInput("clicks", "n INT")


def _checkpoint(folder: Path, batches: list[dict[str, int]], committed: int) -> Path:
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_text('v1\n{"clicks":{"0":3,"1":0}}')
    for number, offsets in enumerate(batches):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"clicks": offsets})]
        (folder / "offsets" / str(number)).write_text("\n".join(lines))
    for number in range(committed):
        (folder / "commits" / str(number)).touch()
    return folder


def test_next_offsets_before_the_first_batch_are_none(tmp_path: Path) -> None:
    assert next_offsets(SOURCE, "clicks", tmp_path, -1) == {}


def test_next_offsets_of_a_batch_that_runs_again_are_its_beginning(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, [{"0": 5, "1": 9}, {"0": 8, "1": 9, "2": 4}], committed=1)
    assert next_offsets(SOURCE, CLICKS, checkpoint, 0) == {"clicks": {0: 5, 1: 9, 2: 0}}


def test_next_offsets_of_a_first_batch_that_runs_again_are_the_querys_beginning(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, [{"0": 5, "1": 9}], committed=0)
    assert next_offsets(SOURCE, CLICKS, checkpoint, -1) == {"clicks": {0: 3, 1: 0}}


def test_next_offsets_of_a_batch_that_the_table_has_are_its_end_though_spark_has_not_noted_it(
    tmp_path: Path,
) -> None:
    checkpoint = _checkpoint(tmp_path, [{"0": 5, "1": 9}, {"0": 8, "1": 9}], committed=1)
    assert next_offsets(SOURCE, CLICKS, checkpoint, 1) == {"clicks": {0: 8, 1: 9}}


def test_next_offsets_of_a_batch_without_rows_that_spark_has_noted_are_its_end(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, [{"0": 5, "1": 9}, {"0": 8, "1": 9}], committed=2)
    assert next_offsets(SOURCE, CLICKS, checkpoint, 0) == {"clicks": {0: 8, 1: 9}}


def test_next_offsets_of_several_topics_are_each_its_own(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, [{"0": 5}, {"0": 8, "1": 9}], committed=1)
    for number, more in enumerate(({"0": 2}, {"0": 2, "1": 1})):
        path = checkpoint / "offsets" / str(number)
        *lines, offsets = path.read_text().splitlines()
        path.write_text("\n".join([*lines, json.dumps({**json.loads(offsets), "taps": more})]))
    both = TopicInput("clicks", "n INT", more=("taps",))
    assert next_offsets(SOURCE, both, checkpoint, 1) == {"clicks": {0: 8, 1: 9}, "taps": {0: 2, 1: 1}}
    # Run again: what was not there in the batch before begins at 0.
    assert next_offsets(SOURCE, both, checkpoint, 0) == {"clicks": {0: 5, 1: 0}, "taps": {0: 2, 1: 0}}
