"""Each column of a window's result has a name of its own."""

from collections.abc import Sequence

import pytest

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.windows.grouping import require_apart
from headwater_streams.operators.windows.spec import BOUNDS


@pytest.mark.parametrize(
    ("aggregates", "sentence"),
    [
        (
            ["n", "k"],
            "agg: an aggregate is called 'k', and by= names a column of that name; give it another name",
        ),
        (["K"], "is called 'K', and by= names a column of that name"),
        (["window_end"], "is called 'window_end', and the windows add a column of that name"),
        (["n", "N"], "is called 'N', and so is another one"),
    ],
)
def test_aggregate_that_is_called_as_another_column_is_refused(
    aggregates: Sequence[str], sentence: str
) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        require_apart(["k"], BOUNDS, aggregates)
    assert sentence in str(refused.value)


def test_aggregates_with_names_of_their_own_are_not_refused() -> None:
    require_apart(["k"], BOUNDS, ["n", "m"])
    require_apart(["k"], (), ["window_end"])
