"""Data quality: checks that jobs carry, and suites over pinned table versions.

`Check` is the one definition of a check; it is importable without Spark, as are the stored results.
`run_suite` (in `quality.run`) turns a table's checks into a great-expectations suite over one Delta version, off
the hot path, and stores its result and Data Docs under `<home>/quality/<table>/v<version>/`:

    result.json               `SuiteResult`, what `headwater quality run --json` prints
    great-expectations.json   the library's own result
    index.html                Data Docs in one file; `<home>/quality/index.html` lists them all
"""

from headwater_streams.base.check import Action, Check, InvalidCheckError, Level, On
from headwater_streams.quality import expect
from headwater_streams.quality.result import Outcome, SuiteResult, stored_results

__all__ = [
    "Action",
    "Check",
    "InvalidCheckError",
    "Level",
    "On",
    "Outcome",
    "SuiteResult",
    "expect",
    "stored_results",
]
