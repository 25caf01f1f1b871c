"""What a check found of one batch, or of one version of a table, and the rules by which it is held or broken.

A result is a part of the ledger entry of the batch (`extra.checks`), so that it is committed with the batch, once. It
is copied from there into the table `quality.results`, see `ledger.check_results`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater_streams.base.check import REMOVING, Check
from headwater_streams.base.extra import Extra, ExtraValues, HasExtra
from headwater_streams.base.plural import quantity
from headwater_streams.base.record import Part
from headwater_streams.base.rule import Judgement, Values

Outcome = Literal["held", "within", "broken"]
MOST_SAMPLED = 10
_WORSE: tuple[Outcome, ...] = ("held", "within", "broken")
_MOST_OBSERVED = 300  # characters, of what several parts observed
NOT_WORKED_OUT = "it cannot be worked out"
"""What is observed of a condition over aggregates that raises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult(Part):
    """The result of one check.

    Attributes:
        check: Its name.
        outcome: `"held"`: no row failed, or the batch passed; `"within"`: rows failed, and were taken out as the check
            says, or are no more than it allows; `"broken"`: it was warned of, or the job was stopped.
        action: What the check does where it is broken.
        judged: How many rows it judged.
        failed: How many of them failed; of a check of the batch, those that it knows to be at fault.
        observed: What was seen, in a few words; empty where the numbers say it all.
        values: What a rule measured, for later batches to be compared with.
        sample: Some of the rows that failed: `TOPIC:PARTITION:OFFSET`, or a key.
    """

    WHAT = "the result of a check"

    check: str
    outcome: Outcome
    action: str
    judged: int
    failed: int = 0
    observed: str = ""
    values: Values = field(default_factory=dict)
    sample: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The result as it stands in an entry; what it lacks is left out, for there is one in each batch."""
        value: dict[str, Any] = {
            "check": self.check,
            "outcome": self.outcome,
            "action": self.action,
            "judged": self.judged,
        }
        if self.failed:
            value["failed"] = self.failed
        if self.observed:
            value["observed"] = self.observed
        if self.values:
            value["values"] = dict(self.values)
        if self.sample:
            value["sample"] = list(self.sample)
        return value

    @classmethod
    def from_json(cls, value: Any) -> "CheckResult":
        """The result that stands in an entry."""
        stored = cls.checked(value)
        return cls(**{**stored, "sample": tuple(stored.get("sample", ()))})

    @property
    def is_broken(self) -> bool:
        """Whether it is broken."""
        return self.outcome == "broken"


def of_rows(check: Check, *, judged: int, failed: int, sample: Sequence[str] = ()) -> CheckResult:
    """The result of a check of rows: what becomes of a batch in which so many of them failed."""
    allowed = check.action in REMOVING if check.at_most is None else check.at_most.allows(failed, judged)
    warns = check.warn_over is not None and not check.warn_over.allows(failed, judged)
    return CheckResult(
        check=check.name,
        outcome="broken" if failed and (warns or not allowed) else "within" if failed else "held",
        action="warn" if allowed and warns else check.action,
        judged=judged,
        failed=failed,
        sample=tuple(sample)[:MOST_SAMPLED],
    )


def of_batch(check: Check, *, judged: int, judgement: Judgement, values: Values | None = None) -> CheckResult:
    """The result of a check of a batch."""
    failed = judgement.failed
    return CheckResult(
        check=check.name,
        outcome="broken" if not judgement.holds else "within" if failed else "held",
        action=check.action,
        judged=judged,
        failed=failed,
        observed=judgement.observed,
        values=values or {},
        sample=judgement.sample[:MOST_SAMPLED],
    )


def stops(result: CheckResult) -> bool:
    """Whether the job may not commit: every action stops it but `"warn"`, where more failed than may."""
    return result.is_broken and result.action != "warn"


def sentence(check: Check, result: CheckResult) -> str:
    """What is wrong with a batch, as a sentence's end: `"3 rows fail the check 'x' (x > 0)"`."""
    name = f"the check {check.name!r} ({check.text})"
    if check.level == "row":
        text = f"{quantity(result.failed, 'row fails', 'rows fail')} {name}"
        if result.action != check.action:
            text += f", of {result.judged:,}; it warns of more than {check.warn_over}"
        elif check.at_most is not None:
            text += f", of {result.judged:,}; it allows {check.at_most}"
        return text
    if result.observed == NOT_WORKED_OUT:
        return f"{name} cannot be worked out for the batch"
    return f"the batch fails {name}" + (f": {result.observed}" if result.observed else "")


def in_entry(results: Iterable[CheckResult]) -> ExtraValues:
    """What an entry says of results, where there are any."""
    found = [each.to_json() for each in results]
    return {Extra.CHECKS: found} if found else {}


def results_of(value: Any) -> tuple[CheckResult, ...]:
    """The results that stand in an entry."""
    return tuple(CheckResult.from_json(each) for each in value or ())


def merged_entries(entries: Iterable[HasExtra]) -> tuple[CheckResult, ...]:
    """The results that stand in some entries, as one for each check."""
    of_entries = (results_of(Extra.CHECKS.get(entry)) for entry in entries)
    return tuple(merged({each.check: each for each in results} for results in of_entries).values())


def merged(parts: Iterable[Mapping[str, CheckResult]]) -> dict[str, CheckResult]:
    """The results of several inputs, tables or batches as one for each check: the rows added up, the worst outcome,
    and what was seen where it was as bad as that."""
    result: dict[str, CheckResult] = {}
    for part in parts:
        for name, each in part.items():
            before = result.get(name)
            result[name] = each if before is None else _both(before, each)
    return result


def _both(one: CheckResult, other: CheckResult) -> CheckResult:
    worst = max(one.outcome, other.outcome, key=_WORSE.index)
    seen = dict.fromkeys(each.observed for each in (one, other) if each.outcome == worst and each.observed)
    observed = "; ".join(seen)
    return CheckResult(
        check=one.check,
        outcome=worst,
        action=one.action if worst != other.outcome else other.action,
        judged=one.judged + other.judged,
        failed=one.failed + other.failed,
        observed=observed if len(observed) <= _MOST_OBSERVED else next(iter(seen)),
        values={**one.values, **other.values},
        sample=(*one.sample, *other.sample)[:MOST_SAMPLED],
    )
