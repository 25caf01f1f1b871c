"""An offset is believed up to `max_jump` beyond all that was seen of its origin, and no further."""

import pyarrow as pa

from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.verdicts import IMPLAUSIBLE, judge


def test_offset_at_the_limit_is_believed_and_the_next_one_is_not() -> None:
    coordinates = pa.table(
        {"key": ["k", "k"], "at": [20, 21], "_topic": ["t", "t"], "_partition": [0, 0], "_offset": [0, 1]}
    )
    verdicts = judge(coordinates, {"k": IntervalSet([(0, 10)])}, max_jump=10)
    assert verdicts.rows.to_pylist() == [
        {"_topic": "t", "_partition": 0, "_offset": 1, "_verdict": IMPLAUSIBLE}
    ]
    assert verdicts.seen["k"].pairs() == [(0, 10), (20, 21)]
