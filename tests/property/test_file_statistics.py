"""Statistics of data files, as they are told from their footers: no value is outside of the bounds."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_streams.delta.file_statistics import statistics_of


@settings(max_examples=50)
@given(
    st.lists(st.none() | st.text() | st.text("xé􏿿", min_size=30, max_size=40), min_size=1, max_size=6),
    st.lists(st.none() | st.datetimes(timezones=st.just(UTC)), min_size=6, max_size=6),
)
def test_bounds_hold_all_values_of_all_row_groups(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], times: list[datetime | None]
) -> None:
    table = pa.table(
        {"text": texts, "at": pa.array(times[: len(texts)], pa.timestamp("us", "UTC"))},
        pa.schema([("text", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    )
    file = tmp_path_factory.mktemp("files") / "f.parquet"
    pq.write_table(table, file, row_group_size=2)
    told = json.loads(statistics_of(file))
    assert told["nullCount"] == {name: table[name].null_count for name in table.column_names}
    for text in filter(None, texts):
        assert told["minValues"]["text"] <= text <= told["maxValues"]["text"]
    for at in (time for time in times[: len(texts)] if time is not None):
        first, last = (datetime.fromisoformat(told[side]["at"]) for side in ("minValues", "maxValues"))
        assert first <= at
        assert (at - last).total_seconds() < 0.001
