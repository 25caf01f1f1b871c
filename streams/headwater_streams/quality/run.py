"""Runs a suite over one version of a table, and stores the result with its Data Docs."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater_streams.base.check import Check, InvalidCheckError
from headwater_streams.base.errors import StreamsError
from headwater_streams.base.rule import Judgement, Values
from headwater_streams.quality.check_result import of_batch
from headwater_streams.quality.reasons import NOT_WORKED_OUT, sentence_of
from headwater_streams.quality.rejected import rejected_beside
from headwater_streams.quality.result import DOCS_FILE, RESULT_FILE, Outcome, SuiteResult, result_folder
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.quality.rule_verdicts import judged_by_rules
from headwater_streams.quality.suite import Skipped, SqlExpectation, Verdict, expectations_for
from headwater_streams.quality.validation import error_of, import_great_expectations, validate
from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.files import exists, is_folder, make_folder, move, scratch_folder, write_text
from headwater_streams.storage.home import Home

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.expectations import Expectation
    from pyspark.sql import DataFrame, SparkSession

GX_RESULT_FILE = "great-expectations.json"


class SuiteError(StreamsError):
    """A suite cannot run as requested: no such version or key, nothing to expect, an ad hoc check that is no SQL."""


def run_suite(
    spark: "SparkSession",
    home: Path,
    table: str,
    *,
    checks: Sequence[Check] = (),
    keys: Sequence[str] = (),
    version: int | None = None,
    extra: Callable[[], Sequence["Expectation"]] | None = None,
) -> SuiteResult:
    """Judges one version of a table and stores the result under `<home>/quality/<table>/v<version>/`.

    The table is read at that version only, so that a job may go on writing. An earlier result for the version is
    replaced as a whole.

    Args:
        spark: A session with Delta.
        home: The folder that holds `tables/`.
        table: `schema.name`.
        checks: The checks of the job that writes it, and any others.
        keys: The columns that name a row: expected to be present and unique.
        version: The Delta version; by default the newest.
        extra: Gives a user's own great-expectations expectations; called once the library is imported.

    Raises:
        SuiteError: The table or version does not exist, a key is not one of its columns, nothing is expected, or
            `extra` gives no expectations.
        DamagedFileError: A file of the table is damaged.
    """
    from headwater_streams.spark.damage_behind import reporting_damage

    with reporting_damage(Home(home.resolve()), [table]):
        result, validation = _judged(spark, home, table, checks, keys, version, extra)
    _store(result, validation, home)
    return result


def judge_by_clock(spark: "SparkSession", home: Path, table: str, checks: Sequence[Check]) -> int:
    """Judges the newest version of a table by those checks that go by the clock, and adds what they came to to
    `quality.results`; the stored result of the version stays as it is. Returns the version.

    Raises:
        SuiteError: The table cannot be read.
        DamagedFileError: A file of the table is damaged.
    """
    from headwater_streams.spark.damage_behind import reporting_damage

    place, now = Home(home.resolve()), datetime.now(UTC)
    mine = [check for check in checks if check.goes_by_clock and check.on == "output"]
    with reporting_damage(place, [table]):
        frame, version = _read(spark, place.table(table), table, None)
        expected, _ = expectations_for(mine, (), ())
        applicable, _ = _applicable(frame, expected, mine)
        now_ms = int(now.timestamp() * 1000)
        found = judged_by_rules(frame, applicable, place, table=table, version=version, now_ms=now_ms)
        rows = frame.count()
    by_name = {check.name: check for check in mine}
    results = [
        of_batch(
            by_name[each.name],
            judged=rows,
            judgement=Judgement(each.verdict.passed, each.verdict.reason),
            values=each.verdict.values,
        )
        for each in found
        if each.verdict is not None
    ]
    ended_ms = int(datetime.now(UTC).timestamp() * 1000)
    judged = Judged(kind="suite", at_ms=ended_ms, table=table, version=version)
    append(place, rows_of(judged, results))
    return version


def _judged(
    spark: "SparkSession",
    home: Path,
    table: str,
    checks: Sequence[Check],
    keys: Sequence[str],
    version: int | None,
    extra: Callable[[], Sequence["Expectation"]] | None,
) -> tuple[SuiteResult, "ExpectationSuiteValidationResult"]:
    from headwater_streams.storage.delta_files import table_damage

    frame, pinned = _read(spark, Home(home).table(table), table, version)
    missing = [name for name in keys if name not in frame.columns]
    if missing:
        raise SuiteError(f"{table} has no column {missing[0]!r}; its columns are {', '.join(frame.columns)}")
    started, ran_at = monotonic(), datetime.now(UTC)
    expected, skipped = expectations_for(checks, keys, frame.columns)
    twice = [name for name, count in Counter(each.name for each in expected).items() if count > 1]
    if twice:
        raise SuiteError(f"two expectations of {table} are named {twice[0]!r}; call the check otherwise")
    expected, unknown = _applicable(frame, expected, checks)
    skipped += unknown
    now_ms = int(ran_at.timestamp() * 1000)
    expected = judged_by_rules(frame, expected, Home(home), table=table, version=pinned, now_ms=now_ms)
    own = _own_expectations(extra)
    if not expected and not own:
        raise SuiteError(
            f"there is nothing to expect of {table}: give a check, keys, or a module whose job writes it and has checks"
        )
    if own:
        frame = frame.persist()  # each of the library's own expectations reads the table again
    try:
        validation, verdicts = validate(frame, table, pinned, expected, own)
    finally:
        frame.unpersist()
    measured = {each.name: each.verdict.values for each in expected if each.verdict is not None}
    outcomes = tuple(_outcome(each, verdicts, measured) for each in validation.results)
    if any(each.error for each in outcomes):  # one that raises does not end the suite
        damaged = table_damage(Home(home).table(table))
        if damaged is not None:
            raise damaged
    result = SuiteResult(
        table=table,
        version=pinned,
        passed=all(each.passed for each in outcomes if each.severity == "critical"),
        rows=frame.count(),
        ran_at=ran_at.isoformat(timespec="seconds"),
        seconds=round(monotonic() - started, 3),
        outcomes=outcomes,
        skipped=skipped,
        folder=result_folder(home, table, pinned),
    )
    return result, validation


def _read(spark: "SparkSession", path: Path, table: str, version: int | None) -> tuple["DataFrame", int]:
    from deltalake.exceptions import DeltaError
    from pyspark.errors import PySparkException

    from headwater_streams.spark.spark_errors import JvmError, reason_of
    from headwater_streams.storage.delta_files import opened_table

    if not is_folder(path / "_delta_log"):
        raise SuiteError(f"there is no table {table} under {path.parent.parent}")
    try:
        newest = opened_table(path).version()
    except (DeltaError, ValueError, OSError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SuiteError(f"{table} cannot be opened: {why}") from error
    pinned = newest if version is None else version
    if not 0 <= pinned <= newest:
        raise SuiteError(f"{table} has no version {pinned}; its newest is {newest}")
    try:
        return spark.read.format("delta").option("versionAsOf", pinned).load(str(path)), pinned
    except (PySparkException, JvmError) as error:
        why = reason_of(error) or sentence_of(error)
        raise SuiteError(f"{table} cannot be read at version {pinned}: {why}") from error


def _applicable(
    frame: "DataFrame", expected: Sequence[SqlExpectation], checks: Sequence[Check]
) -> tuple[tuple[SqlExpectation, ...], tuple[Skipped, ...]]:
    """The expectations that can be evaluated over the table's columns, as Spark's analyser says; nothing is read."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    from headwater_streams.quality.sql_analysis import require_condition, showable

    on_input = {check.name for check in checks if check.on == "input"}
    applicable: list[SqlExpectation] = []
    skipped: list[Skipped] = []
    for each in expected:
        try:
            if each.rule is None and each.kind in ("rows", "aggregate"):
                require_condition(frame, each.text)
            if each.kind == "rows":
                frame.where(each.condition)
            elif each.kind == "aggregate":
                frame.agg(F.expr(each.condition))
            applicable.append(replace(each, calls=showable(frame, each.calls)))
        except ParseException as error:
            raise SuiteError(f"check {each.name!r} is not SQL: {sentence_of(error)}") from error
        except (AnalysisException, InvalidCheckError) as error:
            why = str(error) if isinstance(error, InvalidCheckError) else sentence_of(error)
            if each.name not in on_input:
                raise SuiteError(f"check {each.name!r} does not fit the table: {why}") from error
            skipped.append(
                Skipped(
                    name=each.name, reason=f"it judges the job's input; the table cannot answer it ({why})"
                )
            )
    return tuple(applicable), tuple(skipped)


def _own_expectations(extra: Callable[[], Sequence["Expectation"]] | None) -> list["Expectation"]:
    import_great_expectations()
    from great_expectations.expectations import Expectation

    if extra is None:
        return []
    try:
        expectations = extra()
    except Exception as error:
        raise SuiteError(
            f"the function that gives expectations failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(expectations, list | tuple) or not all(
        isinstance(each, Expectation) for each in expectations
    ):
        raise SuiteError(
            f"the function that gives expectations returned {expectations!r}; it returns a list of great-expectations' "
            "expectations, such as [gxe.ExpectColumnValuesToNotBeNull(column='delay')]"
        )
    return list(expectations)


def _outcome(validated: Any, verdicts: Mapping[str, Verdict], measured: Mapping[str, Values]) -> Outcome:
    """One of great-expectations' results, of our expectation or a user's own, as an outcome."""
    from headwater_streams.quality.gx_expectations import observed_text

    config, result = validated.expectation_config, validated.result or {}
    meta = config.meta or {}
    verdict = verdicts.get(meta.get("check", ""))
    return Outcome(
        name=meta.get("check", config.type),
        text=meta.get("text") or config.description or f"{config.type} {_plain_arguments(config.kwargs)}",
        severity="warning" if config.severity in ("warning", "info") else "critical",
        passed=bool(validated.success),
        observed=observed_text(result),
        unexpected_count=result.get("unexpected_count"),
        unexpected_sample=tuple(str(each) for each in _sample(result)),
        error=verdict.reason if verdict and not verdict.passed else error_of(validated) or _raised(result),
        values=measured.get(meta.get("check", ""), {}),
    )


def _raised(result: Mapping[str, Any]) -> str | None:
    """Why a condition raises for some row; None where it does not."""
    why: str | None = result.get("details", {}).get(NOT_WORKED_OUT)
    return why


def _sample(result: Mapping[str, Any]) -> list[Any]:
    sample = result.get("partial_unexpected_list") or result.get("details", {}).get("repeated_keys", [])
    return list(sample)[:10]


def _plain_arguments(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items() if name != "batch_id")


def _store(result: SuiteResult, validation: "ExpectationSuiteValidationResult", home: Path) -> None:
    from headwater_streams.quality.data_docs import render_index, render_result

    make_folder(result.folder.parent)
    with scratch_folder(result.folder.parent, ".writing-") as scratch:
        written = scratch / "run"
        write_text(written / RESULT_FILE, _json(result.to_json()))
        write_text(written / GX_RESULT_FILE, _json(validation.to_json_dict()))
        write_text(
            written / DOCS_FILE, render_result(result, validation, rejected_beside(Home(home), result.table))
        )
        if exists(result.folder):
            move(result.folder, scratch / "before")
        move(written, result.folder)
    with atomic_file(home / "quality" / "index.html") as index:
        index.write(render_index(home).encode())


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """The library leaves NumPy's scalars in some of its results."""
    return value.item() if hasattr(value, "item") else str(value)
