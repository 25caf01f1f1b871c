"""The result of a suite, and where it is stored: `<home>/quality/<table>/v<version>/result.json`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater_streams.base.names import is_table_name
from headwater_streams.base.record import Part, Record
from headwater_streams.base.rule import Values
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.suite import Severity, Skipped
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import matching
from headwater_streams.storage.records import naming_file
from headwater_streams.storage.stored_files import parsed_json, read_bytes

RESULT_FILE, DOCS_FILE = "result.json", "index.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Part):
    """The result of one expectation.

    Attributes:
        name: The check's name, or the great-expectations type of a user's own expectation.
        text: What was expected.
        severity: A `"warning"` does not fail the suite.
        passed: Whether it held; false if it could not be evaluated.
        observed: A few words: the share of unexpected rows, the values of the aggregates.
        unexpected_count: The number of rows that violate it; None where it does not judge single rows.
        unexpected_sample: A few of those rows, as JSON text.
        error: Why it could not be evaluated, at all or for some row; None if it was.
        values: What a rule measured; stored where there is any.
    """

    WHAT = "the outcome of an expectation"

    name: str
    text: str
    severity: Severity
    passed: bool
    observed: str
    unexpected_count: int | None = None
    unexpected_sample: tuple[str, ...] = ()
    error: str | None = None
    values: Values = field(default_factory=dict)

    def check_result(self, rows: int) -> CheckResult:
        """The same as `quality.results` has it, of a table of so many rows."""
        failed = self.unexpected_count or 0
        return CheckResult(
            check=self.name,
            outcome="broken" if not self.passed else "within" if failed else "held",
            action="warn" if self.severity == "warning" else "fail",
            judged=rows,
            failed=failed,
            observed=self.error or self.observed,
            values=self.values,
            sample=self.unexpected_sample,
        )

    def to_json(self) -> dict[str, Any]:
        """The outcome as a result has it."""
        value: dict[str, Any] = {
            "name": self.name,
            "text": self.text,
            "severity": self.severity,
            "passed": self.passed,
            "observed": self.observed,
            "unexpected_count": self.unexpected_count,
            "unexpected_sample": list(self.unexpected_sample),
            "error": self.error,
        }
        return value | {"values": dict(self.values)} if self.values else value

    @classmethod
    def from_json(cls, value: Any) -> "Outcome":
        """The outcome that stands in a result."""
        stored = cls.checked(value)
        return cls(**{**stored, "unexpected_sample": tuple(stored["unexpected_sample"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteResult(Record):
    """The result of a suite for one version of a table.

    Attributes:
        table: `schema.name`.
        version: The Delta version that was read.
        passed: No critical expectation was violated.
        rows: The number of rows in the version.
        ran_at: When the suite ran, in UTC, as ISO 8601.
        seconds: How long it took, without starting Spark.
        outcomes: One for each expectation.
        skipped: Checks that cannot judge the table.
        folder: Where result and Data Docs are.
    """

    WHAT = "the result of a suite"
    MORE_KEYS = frozenset(("docs",))

    table: str
    version: int
    passed: bool
    rows: int
    ran_at: str
    seconds: float
    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skipped, ...]
    folder: Path

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The critical expectations that did not hold."""
        return tuple(each for each in self.outcomes if not each.passed and each.severity == "critical")

    @property
    def warnings(self) -> tuple[Outcome, ...]:
        """The others that did not hold."""
        return tuple(each for each in self.outcomes if not each.passed and each.severity == "warning")

    @property
    def docs(self) -> Path:
        """The page to open in a browser."""
        return self.folder / DOCS_FILE

    def to_json(self) -> dict[str, Any]:
        """The result as it is stored and printed."""
        return self.version_key() | {
            "table": self.table,
            "version": self.version,
            "passed": self.passed,
            "rows": self.rows,
            "ran_at": self.ran_at,
            "seconds": self.seconds,
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "skipped": [skipped.to_json() for skipped in self.skipped],
            "folder": str(self.folder),
            "docs": str(self.docs),
        }

    @classmethod
    def from_json(cls, value: Any) -> "SuiteResult":
        """The result as it was stored; its folder is where it was written, and may have been moved since."""
        stored = cls.checked(value)
        return cls(
            table=stored["table"],
            version=stored["version"],
            passed=stored["passed"],
            rows=stored["rows"],
            ran_at=stored["ran_at"],
            seconds=stored["seconds"],
            outcomes=tuple(Outcome.from_json(outcome) for outcome in stored["outcomes"]),
            skipped=tuple(Skipped.from_json(skipped) for skipped in stored["skipped"]),
            folder=Path(stored["folder"]),
        )


def result_folder(home: Path, table: str, version: int) -> Path:
    """Where the result of one version is stored."""
    return home / "quality" / table / f"v{version}"


def load_result(folder: Path) -> SuiteResult:
    """Reads a stored result.

    Raises:
        DamagedFileError: The folder has none, or it is not what a run writes.
        NewerFileError: A newer Headwater wrote it.
    """
    path = folder / RESULT_FILE
    stored = parsed_json(path, read_bytes(path))
    with naming_file(path, SuiteResult.WHAT):
        return replace(SuiteResult.from_json(stored), folder=folder)


def _pass_over(damaged: DamagedFileError) -> None:
    """A run of the same version writes it again."""


def stored_results(
    home: Path, table: str | None = None, damaged: Callable[[DamagedFileError], None] = _pass_over
) -> list[SuiteResult]:
    """The stored results of a home, by table and version.

    Args:
        home: The home.
        table: The table; all by default.
        damaged: Is called with the error of each result that cannot be read; the result is left out.
    """
    results = []
    if table is not None and not is_table_name(table):  # `*` would match all tables, and `..` another folder
        return []
    for path in matching(home / "quality", f"{table or '*'}/v*/{RESULT_FILE}"):
        try:
            results.append(load_result(path.parent))
        except DamagedFileError as error:
            damaged(error)
    return sorted(results, key=lambda result: (result.table, result.version))
