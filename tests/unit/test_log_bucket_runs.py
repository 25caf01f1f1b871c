"""The buckets of a log's records, as the broker counts them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater_broker.log.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from headwater_broker.log.bucket_runs import bucket_runs
from headwater_broker.testing.batches import build_batch
from headwater_client.events import EARLIEST_MS, LATEST_MS, bucket_of

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


def test_bucket_runs_leave_out_markers_and_what_was_aborted() -> None:
    aborted = build_batch([b"a"], attributes=TRANSACTIONAL, producer_id=7)
    data = aborted + build_batch([b"b"], base_offset=1, attributes=TRANSACTIONAL, producer_id=8)
    data += build_batch([b"end"], base_offset=2, attributes=TRANSACTIONAL | CONTROL, producer_id=7)
    data += build_batch([b"of the next"], base_offset=3, attributes=TRANSACTIONAL, producer_id=7)
    assert bucket_runs(data, MINUTE_MS, aborted=[(7, 0)]) == ([(1, 2, 0), (3, 4, 0)], 4)
    # Read from within: the transaction began before.
    assert bucket_runs(data[len(aborted) :], MINUTE_MS, 1, [(7, 0)]) == ([(1, 2, 0), (3, 4, 0)], 4)


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


def test_bucket_runs_go_past_a_batch_that_cannot_be_read() -> None:
    batch = build_batch([b"a"])
    batch[61] ^= 0x7F
    assert bucket_runs(batch + build_batch([b"b"], base_offset=1), MINUTE_MS) == ([(1, 2, 0)], 2)


AROUND = st.one_of(
    st.integers(-2 * MINUTE_MS, 5 * MINUTE_MS),
    st.sampled_from([-1, 0, MINUTE_MS - 1, EARLIEST_MS - 1, EARLIEST_MS, LATEST_MS, LATEST_MS + 1, 2**53]),
)


@given(st.lists(AROUND, min_size=1, max_size=20), st.integers(0, 25))
@example([59_999, -1], 0)  # without a timestamp
def test_bucket_runs_are_the_same_whether_records_are_told_apart_or_not(times: list[int], start: int) -> None:
    batch = build_batch([b"x"] * len(times), timestamps_ms=times)
    runs, end = bucket_runs(batch, MINUTE_MS, start)
    each = {offset: bucket for first, last, bucket in runs for offset in range(first, last)}
    assert each == {n: bucket_of(ms, MINUTE_MS) for n, ms in enumerate(times) if n >= start}
    assert end == max(len(times), start)
