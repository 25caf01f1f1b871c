"""`headwater audit --counts`: what each tier saw of each topic, by bucket."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.cli._common import print_json, print_line, print_table
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.base.errors import JobDefinitionError, RefusedError, UnavailableError
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from headwater.running.counts import TopicAudit
    from headwater_streams.ledger.counts import BucketVerdict

_DEFAULT = "1 minute"
_TIERS = ("producer", "appended", "broker", "mirror", "input", "table", "quarantine", "late", "duplicate")


def audit_counts(
    home: Path,
    topics: Sequence[str],
    bootstrap: str | None,
    *,
    bucket: str | None,
    grace: str | None,
    mirrors: Sequence[str],
    whole: bool,
    every: bool,
    as_json: bool,
) -> None:
    """Audits topics by counts, and prints what was found.

    Args:
        home: The home.
        topics: The topics; none for all.
        bootstrap: What --bootstrap names.
        bucket: How wide a bucket is, as it was typed.
        grace: How long after its end a bucket is open, as it was typed.
        mirrors: Clusters that topics are mirrored into.
        whole: Whether topics are read from their beginning.
        every: Whether each bucket is printed.
        as_json: Whether JSON is printed.

    Raises:
        UsageError: An option is wrong, or there is no such topic.
        UserError: The brokers do not answer, or refuse this client.
    """
    from headwater.audit import counts  # not by `headwater` itself, whose names load PySpark

    try:
        audits = counts(
            topics,
            bucket=bucket or _DEFAULT,
            grace=grace or _DEFAULT,
            home=home,
            bootstrap=bootstrap,
            mirrors=mirrors,
            whole=whole,
        )
    except JobDefinitionError as error:
        raise UsageError(str(error)) from error
    except (RefusedError, UnavailableError) as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json([_plain(each) for each in audits])
    else:
        _print(audits, every=every)
    if not all(each.ok for each in audits):
        raise typer.Exit(EXIT_FAILED)


def _plain(audit: "TopicAudit") -> dict[str, Any]:
    return {
        "topic": audit.topic,
        "bucket_ms": audit.bucket_ms,
        "ok": audit.ok,
        "buckets": [
            {
                "bucket": iso(each.bucket_start_ms * 1000),
                "status": each.status,
                **each.numbers,
                "counts": [
                    {"tier": c.tier, "place": c.where, "records": c.count, "open": c.open}
                    for c in each.counts
                ],
            }
            for each in audit.verdicts
        ],
        "findings": list(audit.findings),
        "notes": list(audit.notes),
    }


def _print(audits: "Sequence[TopicAudit]", *, every: bool) -> None:
    rows = [
        (audit.topic, iso(verdict.bucket_start_ms * 1000), _tiers(verdict), verdict.words)
        for audit in audits
        for verdict in (audit.verdicts if every else audit.judged)
        if every or verdict.status not in ("complete", "unknown")
    ]
    if rows:
        print_table(["topic", "bucket", "records", "status"], rows, empty="")
    for sentence in dict.fromkeys(each for audit in audits for each in (*audit.notes, *audit.findings)):
        print_line(sentence)
    for audit in audits:
        status = Counter(each.status for each in audit.judged) + Counter(audit.settled)
        unknown = status["unknown"]
        print_line(
            f"{audit.topic}: {status['complete']:,} of {quantity(status.total(), 'bucket')} complete"
            + (f", {unknown:,} unknown, which --all shows" if unknown else "")
        )
    if not audits:
        print_line(
            "no topic that a producer counts or a job reads: wrap a producer in headwater_client.counted"
        )


def _tiers(verdict: "BucketVerdict") -> str:
    """What each tier saw, in the order in which a record passes them: `broker 120, table silver.clicks 118`."""
    ordered = sorted(verdict.counts, key=lambda each: (_TIERS.index(each.tier), each.where))
    return ", ".join(f"{' '.join(filter(None, (each.tier, each.where)))} {each.count:,}" for each in ordered)
