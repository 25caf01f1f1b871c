"""What a suite found, as rows of `quality.results`."""

from datetime import datetime, timedelta

from headwater_streams.quality.result import SuiteResult
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.storage.home import Home


def keep_result(home: Home, result: SuiteResult) -> None:
    """Adds a row for each expectation of a suite; a suite that runs again over a version adds its rows anew.

    Their time is that of its end: who looks at what is new would miss what is dated back by as long as a suite takes.
    """
    ended = datetime.fromisoformat(result.ran_at) + timedelta(seconds=result.seconds)
    judged = Judged(
        kind="suite",
        at_ms=int(ended.timestamp() * 1000),
        table=result.table,
        version=result.version,
    )
    append(home, rows_of(judged, [each.check_result(result.rows) for each in result.outcomes]))
