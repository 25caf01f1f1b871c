"""What `help(hw.join)` and the like show can be written so."""

import inspect
import textwrap

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater as hw

_NAMES = (
    *("as_of", "count_window", "cumulative", "enrich", "grouped", "hopping"),
    *("join", "latest", "session", "top", "tumbling", "union"),
)


@pytest.mark.story
@pytest.mark.parametrize("name", _NAMES)
def test_example_of_the_help_gives_rows(name: str, spark: SparkSession) -> None:
    def frame(columns: str, *rows: str) -> object:
        return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t({columns})")

    at = "TIMESTAMP '2013-01-01 10:00:00'"
    orders = frame(
        "order_id, customer, currency, amount, ordered_at",
        *(f"('o{n}', 'ann', 'EUR', {n}, {at} + INTERVAL {n} SECONDS)" for n in range(101)),
    )
    given = {
        "F": F,
        "hw": hw,
        "orders": orders,
        "payments": frame("order_id, paid_at", f"('o1', {at} + INTERVAL 1 MINUTE)"),
        "rates": frame("currency, rate, since", f"('EUR', 1.1, {at} - INTERVAL 1 MINUTE)"),
        "currencies": frame("code, title", "('EUR', 'Euro')"),
        "returns": frame("order_id, returned_at", f"('o1', {at})"),
    }
    text = inspect.getdoc(getattr(hw, name)) or ""
    example = textwrap.dedent(text.partition("\nExample:\n")[2].partition("\n\n")[0])
    assert example.lstrip().startswith("hw.")
    assert eval(example.strip(), given).count()
