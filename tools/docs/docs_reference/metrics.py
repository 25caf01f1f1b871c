"""The page of metrics: `headwater.progress`, and where else numbers of running jobs are."""

from docs_reference.markdown import code, plain, table
from docs_reference.tables import library_tables
from headwater.cli.verbs import VERBS
from headwater_streams.runtime import progress


def page() -> str:
    """The Markdown."""
    _, what = library_tables()[progress.PROGRESS_TABLE]
    rows = [(code(name), plain(text)) for name, text in what.items()]
    summary = plain(VERBS["jobs"].summary)
    return "\n".join(
        [
            "# Metrics",
            "",
            "Running jobs append one row for each batch, start, stop, failure and pause to the Delta table",
            f"`{progress.PROGRESS_TABLE}`. Any reader of Delta tables can query it, as can `headwater sql`.",
            "",
            table(("Column", "What it holds"), rows),
            f"`rows` of `{progress.PROGRESS_TABLE}` over `duration_ms` is a job's rate, `behind` its lag, and the time",
            "since `watermark` how late its windows are written. The ledger, not this table, accounts for rows.",
            "",
            "| Command | What it shows |",
            "| --- | --- |",
            f"| [`headwater jobs status --watch`](commands/jobs.md) | {summary} |",
            f"| [`headwater groups describe`](commands/groups.md) | {plain(VERBS['groups'].summary)} |",
            f"| [`headwater status`](commands/status.md) | {plain(VERBS['status'].summary)} |",
            f"| [`headwater audit`](commands/audit.md) | {plain(VERBS['audit'].summary)} |",
            "",
        ]
    )
