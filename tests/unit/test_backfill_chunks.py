"""How a repair of rows is cut into steps: whole live batches, up to a number of rows, each of one look-up version."""

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.repair.rows.planning import chunks_of
from headwater_streams.backfill.values import LiveBatchId


def batches(*counts: int, lookups: dict[int, int] | None = None) -> list[tuple[LiveBatch, dict]]:
    """Batches one behind the other; `lookups` has the version that a batch read, by its number."""
    found, at = [], 0
    for number, count in enumerate(counts):
        ranges = {"t": {0: (at, at + count)}}
        versions = {"names": (lookups or {}).get(number, 1)}
        found.append(
            (
                LiveBatch(
                    LiveBatchId(generation=1, batch=number, ranges=ranges), None, None, lookups=versions
                ),
                ranges,
            )
        )
        at += count
    return found


def steps(*counts: int, limit: int, lookups: dict[int, int] | None = None) -> list[tuple[int, list[int]]]:
    """The rows and the batches of each step."""
    made = chunks_of(batches(*counts, lookups=lookups), limit, {})
    assert [chunk.number for chunk in made] == list(range(len(made)))
    return [(chunk.rows, [each.batch for each in chunk.batches]) for chunk in made]


def test_chunks_hold_as_many_rows_as_they_may_and_no_more() -> None:
    assert steps(2, 2, 2, limit=4) == [(4, [0, 1]), (2, [2])]
    assert steps(2, 3, 1, limit=4) == [(2, [0]), (4, [1, 2])]


def test_chunk_of_a_batch_beyond_the_limit_is_that_batch_alone() -> None:
    assert steps(9, 1, limit=4) == [(9, [0]), (1, [1])]


def test_chunks_end_where_batches_read_another_version_of_a_look_up() -> None:
    assert steps(1, 1, 1, limit=10, lookups={2: 7}) == [(2, [0, 1]), (1, [2])]
