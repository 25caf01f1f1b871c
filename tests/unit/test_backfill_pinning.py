"""At which version a repair reads a table, and of which table each row has coordinates of its own: by facts alone."""

import headwater as hw
from backfill_facts import commit, entry, history, offsets, part, said, source
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.repair.input import cut_at
from headwater_streams.backfill.repair.pinning import (
    is_of_input,
    pinned_at,
    shared_coordinates,
    version_to_pin,
)
from headwater_streams.ledger.log import Commit

bids = hw.table("silver.bids")
JOB = part({"bids": bids}).job
RAN = history(entry(0, source(offsets(bids=(0, 4)), of="bids", table="silver.bids", until=3)))
"""It has read the table up to version 3."""


def commits(*later: Commit) -> list[Commit]:
    """Those of the table: versions that were read, and later ones."""
    return [commit(0, added=0), *(commit(version) for version in (1, 2, 3)), *later]


def test_table_is_read_at_the_last_version_that_the_job_has_read() -> None:
    assert version_to_pin(JOB, "bids", RAN, commits()) == 3
    assert version_to_pin(JOB, "bids", RAN, commits(commit(4), commit(5))) == 3


def test_rows_that_were_rewritten_since_are_read_as_they_are_now() -> None:
    swap, optimised = commit(4, removed=1), commit(5, removed=2, data_changed=False)
    assert version_to_pin(JOB, "bids", RAN, commits(swap)) == 4
    assert version_to_pin(JOB, "bids", RAN, commits(swap, optimised)) == 5
    assert version_to_pin(JOB, "bids", RAN, commits(swap, commit(5))) == 4, (
        "the job reads what came behind itself"
    )
    assert version_to_pin(JOB, "bids", RAN, commits(commit(4), replace_nothing(5))) == 3


def replace_nothing(version: int) -> Commit:
    """A commit that only moved rows between files."""
    return commit(version, removed=2, data_changed=False)


def test_rows_that_were_rewritten_behind_some_that_were_not_read_are_refused() -> None:
    assert said(
        version_to_pin(JOB, "bids", RAN, commits(commit(4), commit(5, removed=1))), BackfillError
    ) == (
        "the job 'clean' has not read 1 commit of silver.bids that came before its rows were rewritten; let the job "
        "catch up, then plan again"
    )


def test_table_that_was_not_read_is_refused() -> None:
    assert said(version_to_pin(JOB, "bids", history(), commits())) == (
        "the job 'clean' has not read anything of silver.bids yet, so there is nothing to mend"
    )
    of_other = history(entry(0, source(offsets(asks=(0, 4)), of="asks", table="silver.asks", until=3)))
    assert "has not read anything of silver.bids" in said(version_to_pin(JOB, "bids", of_other, commits()))


def test_input_is_known_by_its_table_whatever_the_parameter_was_called() -> None:
    renamed = source(offsets(bids=(0, 4)), of="offers", table="silver.bids")
    assert is_of_input(JOB, "bids")(renamed)
    twice = part({"lefts": bids, "rights": bids}).job
    assert not is_of_input(twice, "lefts")(renamed)
    assert is_of_input(twice, "lefts")(source(offsets(bids=(0, 4)), of="lefts", table="silver.bids"))


def test_pinned_table_says_up_to_which_batch_it_is_and_whether_rows_were_replaced() -> None:
    made = [commit(0, added=0), commit(1, entry(4, job="bid", generation=2))]
    pinned = pinned_at(TableHistory(made, "silver.bids"))
    assert (pinned.table, pinned.version, pinned.until, pinned.was_rewritten) == (
        "silver.bids",
        1,
        (2, 4),
        False,
    )
    swapped = [*made, commit(2, removed=1)]
    assert pinned_at(TableHistory(swapped, "silver.bids")).was_rewritten
    moved = [*made, replace_nothing(2)]
    assert not pinned_at(TableHistory(moved, "silver.bids")).was_rewritten


def test_rows_that_share_their_coordinates_are_refused() -> None:
    assert shared_coordinates("clean", "silver.bids", is_shared=False, made_again=()) is None
    assert said(shared_coordinates("clean", "gold.pairs", is_shared=True, made_again=())) == (
        "a row of gold.pairs is made of several records, so what the job 'clean' makes of a range of offsets cannot be "
        "told from the rest; build all of its rows again: headwater backfill plan JOB --rebuild"
    )
    assert said(shared_coordinates("clean", "silver.bids", is_shared=False, made_again={"bids"})).startswith(
        "the topic bids was deleted and made again, and silver.bids has rows of both with the same offsets, so what"
    )


def test_offsets_are_cut_at_the_first_of_each_partition() -> None:
    ranges = {"t": {0: (2, 9), 1: (0, 5)}}
    assert cut_at(ranges, {"t": {0: (4, 6)}}) == (
        {"t": {0: (2, 4), 1: (0, 5)}},
        {"t": {0: (4, 9), 1: (5, 5)}},
    )
