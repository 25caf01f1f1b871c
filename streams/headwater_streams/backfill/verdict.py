"""What a verification found: the verdict that a swap asks for."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater_streams.backfill.change import Change
from headwater_streams.backfill.diff import Diff
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import FolderRecord, ranges_from_json, ranges_to_json
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.record import Part
from headwater_streams.quality.check_result import CheckResult, results_of


@dataclass(frozen=True, kw_only=True)
class Finding(Part):
    """One thing that was looked at: its name, whether it holds, and what was seen."""

    WHAT = "a finding"

    name: str
    ok: bool
    detail: str

    def to_json(self) -> dict[str, Any]:
        """The finding as a verdict has it."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail}

    @classmethod
    def from_json(cls, value: Any) -> "Finding":
        """The finding that stands in a verdict."""
        return cls(**cls.checked(value))


@dataclass(frozen=True, kw_only=True)
class Verdict(FolderRecord):
    """What a verification found.

    Attributes:
        backfill: The backfill's id.
        passed: Whether every finding holds; only then can it be swapped in.
        findings: What was looked at.
        accounting: The terms of the run, as the swap's ledger entry will carry them.
        diff: What the swap changes.
        notes: What a person should know.
        shadow_version: The shadow's version that was verified.
        verified_at: When.
        table_version: The live table's version that the diff speaks of; None where a swap looks for itself.
        beside: What the swap changes in the job's other tables, where it writes several.
        ranges: The offsets that a rebuild has read; a repair's are in its plan.
        checks: What the job's checks came to of the new rows; stored where there are any.
    """

    WHAT = "a verdict"
    FILE = "verdict"
    MORE_KEYS = frozenset(("digest",))

    backfill: str
    passed: bool
    findings: tuple[Finding, ...]
    accounting: Mapping[str, int]
    diff: Diff
    notes: tuple[str, ...]
    shadow_version: int
    verified_at: str
    table_version: int | None = None
    beside: Mapping[str, Change] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    checks: tuple[CheckResult, ...] = ()

    @property
    def digest(self) -> str:
        """Names what the swap changes: the diff, or the diffs of all tables."""
        if not self.beside:
            return self.diff.digest
        told = [self.diff.digest, *((name, change.diff.digest) for name, change in self.beside.items())]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The verdict as it is stored and printed."""
        value = self.version_key() | {
            "backfill": self.backfill,
            "passed": self.passed,
            "findings": [finding.to_json() for finding in self.findings],
            "accounting": dict(self.accounting),
            "diff": self.diff.to_json(),
            "notes": list(self.notes),
            "shadow_version": self.shadow_version,
            "verified_at": self.verified_at,
            "table_version": self.table_version,
            "beside": {name: change.to_json() for name, change in self.beside.items()},
            "ranges": ranges_to_json(self.ranges),
            "digest": self.digest,
        }
        return value | {"checks": [each.to_json() for each in self.checks]} if self.checks else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Verdict":
        """The verdict as it was stored."""
        value = cls.checked(value)
        return cls(
            backfill=value["backfill"],
            passed=value["passed"],
            findings=tuple(Finding.from_json(finding) for finding in value["findings"]),
            accounting=value["accounting"],
            diff=Diff.from_json(value["diff"]),
            notes=tuple(value["notes"]),
            shadow_version=value["shadow_version"],
            verified_at=value["verified_at"],
            table_version=value.get("table_version"),
            beside={name: Change.from_json(change) for name, change in value.get("beside", {}).items()},
            ranges=ranges_from_json(value.get("ranges", {})),
            checks=results_of(value.get("checks")),
        )


def passing(verdict: Verdict | None, backfill: str, version: int, accepted: str | None) -> Verdict:
    """The stored verdict on a shadow as it is now, if it allows a swap.

    Args:
        verdict: The stored verdict, if there is one.
        backfill: The backfill's id.
        version: The shadow's version.
        accepted: The digest of the diff that a person has read and accepts; None: whatever differs is accepted.

    Raises:
        BackfillError: There is none, it did not pass, or its diff is not the one that was read.
    """
    if verdict is None or verdict.shadow_version != version:
        raise BackfillError(f"the backfill {backfill!r} is not verified as it is now; verify it first")
    if not verdict.passed:
        broken = [f"{finding.name}: {finding.detail}" for finding in verdict.findings if not finding.ok]
        raise BackfillError(f"the verdict on {backfill!r} did not pass ({'; '.join(broken)})")
    if accepted is not None and accepted != verdict.digest:
        raise BackfillError(
            f"the diff of {backfill!r} has the digest {verdict.digest}, and {accepted} was accepted; read "
            "the verdict again: headwater backfill verify"
        )
    return verdict
