"""Which tables a job may write."""

import pytest

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("headwater.ledger", "the schema 'headwater' is Headwater's own"),
        ("quality.results", "it is Headwater's own"),
        ("Audit.counts", "it is Headwater's own"),
        ("Headwater.mine", "the schema 'headwater' is Headwater's own"),
        ("gold.delays__late", "names with '__late' are of tables that the library puts beside a job's"),
        ("gold.delays__quarantine", "names with '__quarantine' are"),
        ("gold.delays__CHANGES", "names with '__changes' are"),
        ("gold.delays__ingest_departures", "names with '__ingest_' are"),
    ],
)
def test_target_that_the_library_writes_itself_is_refused(name: str, told: str) -> None:
    for declare in (
        lambda: hw.delta(name),
        lambda: hw.scd1(name, keys=["id"], sequence_by="at"),
    ):
        with pytest.raises(JobDefinitionError) as error:
            declare()
        assert told in str(error.value)


def test_target_s_name_may_hold_the_words_of_side_tables() -> None:
    assert hw.delta("gold.late").late_table == "gold.late__late"
    assert hw.delta("gold.quarantine_of_ingest").name == "gold.quarantine_of_ingest"
