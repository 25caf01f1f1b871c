"""What a suite found, as rows of `quality.results`."""

from datetime import datetime, timedelta

from headwater_streams.quality.result import SuiteResult
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.storage.home import Home


def keep_result(home: Home, result: SuiteResult, *, by_hand: bool = False) -> None:
    """Adds a row for each expectation of a suite; a suite that runs again over a version adds its rows anew.

    Those of a suite that a person ran, `by_hand`, are no alarm, and have not the last word on a check.

    Their time is that of its end: who looks at what is new would miss what is dated back by as long as a suite takes.
    """
    ended = datetime.fromisoformat(result.ran_at) + timedelta(seconds=result.seconds)
    judged = Judged(
        kind="manual" if by_hand else "suite",
        at_ms=int(ended.timestamp() * 1000),
        table=result.table,
        version=result.version,
    )
    append(home, rows_of(judged, [each.check_result(result.rows) for each in result.outcomes]))
