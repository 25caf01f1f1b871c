"""The books of one table that a repair has made anew."""

from dataclasses import dataclass

from headwater_streams.backfill.verdict import Finding


@dataclass(frozen=True)
class Account:
    """What stands in the books, and what was found in them.

    Attributes:
        findings: What was found.
        notes: What a person should know, each a sentence.
        terms: The terms, as the swap's ledger entry will carry them.
        rows: How many rows of the shadow are inside the range.
        keys: How many keys these have.
    """

    findings: list[Finding]
    notes: list[str]
    terms: dict[str, int]
    rows: int
    keys: int
