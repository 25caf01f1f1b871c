"""The buckets of a log's records, as the broker counts them."""

import pytest

from headwater_broker.log.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from headwater_broker.log.bucket_runs import bucket_runs
from headwater_broker.log.records import UnreadableBatchError
from headwater_broker.testing.batches import build_batch

MINUTE_MS = 60_000


def test_bucket_runs_go_by_each_record_and_not_by_the_header() -> None:
    # The second is before the first, which gives the header its base.
    batch = build_batch([b"a", b"b", b"c"], timestamps_ms=[60_000, 59_999, 61_000])
    assert bucket_runs(batch, MINUTE_MS) == ([(0, 1, 60_000), (1, 2, 0), (2, 3, 60_000)], 3)


def test_bucket_runs_of_batches_that_follow_each_other_are_one() -> None:
    data = build_batch([b"a", b"b"], timestamps_ms=[1, 2]) + build_batch(
        [b"c"], base_offset=2, timestamps_ms=[3]
    )
    data += build_batch([b"d"], base_offset=7, timestamps_ms=[4])
    assert bucket_runs(data, MINUTE_MS) == ([(0, 3, 0), (7, 8, 0)], 8)
    assert bucket_runs(data, MINUTE_MS, 2) == ([(2, 3, 0), (7, 8, 0)], 8)


@pytest.mark.parametrize("attributes", [CONTROL, TRANSACTIONAL])
def test_bucket_runs_leave_out_what_readers_may_not_see(attributes: int) -> None:
    data = build_batch([b"a"], attributes=attributes) + build_batch([b"b"], base_offset=1)
    assert bucket_runs(data, MINUTE_MS) == ([(1, 2, 0)], 2)


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_bucket_runs_read_compressed_records(codec: int) -> None:
    batch = build_batch([b"a", b"b"], timestamps_ms=[1, 60_000], attributes=codec)
    assert bucket_runs(batch, MINUTE_MS) == ([(0, 1, 0), (1, 2, 60_000)], 2)


def test_bucket_runs_of_a_stamped_batch_are_those_of_the_stamp() -> None:
    batch = build_batch([b"a", b"b"], timestamps_ms=[1, 120_000], attributes=LOG_APPEND_TIME)
    assert bucket_runs(batch, MINUTE_MS) == ([(0, 2, 120_000)], 2)


def test_bucket_runs_leave_a_batch_that_is_cut_to_the_next_time() -> None:
    whole = build_batch([b"a"], timestamps_ms=[1])
    cut = build_batch([b"b"], base_offset=1, timestamps_ms=[2])[:-1]
    assert bucket_runs(whole + cut, MINUTE_MS) == ([(0, 1, 0)], 1)
    assert bucket_runs(b"", MINUTE_MS, 9) == ([], 9)


def test_bucket_runs_of_an_unreadable_batch_are_an_error() -> None:
    batch = build_batch([b"a"])
    batch[61] ^= 0x7F
    with pytest.raises(UnreadableBatchError):
        bucket_runs(batch, MINUTE_MS)
