"""What a suite found, as rows of `quality.results`."""

from datetime import datetime

from headwater_streams.quality.result import SuiteResult
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.storage.home import Home


def keep_result(home: Home, result: SuiteResult) -> None:
    """Adds a row for each expectation of a suite; a suite that runs again over a version adds its rows anew."""
    judged = Judged(
        kind="suite",
        at_ms=int(datetime.fromisoformat(result.ran_at).timestamp() * 1000),
        table=result.table,
        version=result.version,
    )
    append(home, rows_of(judged, [each.check_result(result.rows) for each in result.outcomes]))
