"""The pages of the reference, made from the code, so that nothing is written twice.

Each module makes one page, or the pages of one folder, as Markdown. The text of a page is where the code needs it: in
the help of commands, in the definitions of settings, in docstrings, in tables of words.
"""

from collections.abc import Mapping
from pathlib import Path

from docs_reference import (
    commands,
    exit_codes,
    ledger_entries,
    messages,
    metrics,
    python_api,
    settings,
    sql_jobs,
    tables,
)

_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
_SUMMARIES = {
    "commands/index.md": "Every verb of `headwater` with its options.",
    "settings.md": "Every key of the settings files, and every property of a broker and of a topic.",
    "python.md": "What `import headwater as hw` gives, and the drivers and fixtures for tests.",
    "sql-jobs.md": "The language of `.sql` files.",
    "tables.md": "The columns that the library adds, and its own tables.",
    "ledger-entries.md": "What stands in the Delta commits of jobs.",
    "metrics.md": "What running jobs tell of themselves.",
    "exit-codes.md": "What a command's exit status means.",
    "messages.md": "Error messages that name a remedy.",
}
_WRITTEN = {
    "what-works.md": "What Headwater can do, part by part, and what not yet.",
    "values.md": "Which value of a record is which value of a column, and what goes to quarantine.",
    "names.md": "What columns, tables, jobs, checks and topics can be called.",
    "parsers.md": "The columns that access logs, syslog, key=value and templates give.",
    "home.md": "Every file below `.headwater`, and what to do if it is gone or damaged.",
    "broker-figures.md": "The broker's speed and cost beside Apache Kafka and others.",
    "streams-figures.md": "The speed of jobs and backfills beside plain PySpark and Apache Flink.",
}


def pages() -> Mapping[str, str]:
    """The Markdown of each page by its path below docs/."""
    texts = {
        "settings.md": settings.page(),
        "python.md": python_api.page(),
        "sql-jobs.md": sql_jobs.page(),
        "tables.md": tables.page(),
        "ledger-entries.md": ledger_entries.page(),
        "metrics.md": metrics.page(),
        "exit-codes.md": exit_codes.page(),
        "messages.md": messages.page(),
        **{f"commands/{name}": text for name, text in commands.pages().items()},
    }
    texts["index.md"] = _index(texts)
    return {f"reference/{path}": text for path, text in texts.items()}


def _index(texts: Mapping[str, str]) -> str:
    """Every page by its title, first those from the code, then those that are written by hand."""
    lines = [f"- [{_title(texts[path])}]({path}): {summary}" for path, summary in _SUMMARIES.items()]
    written = {path.name: _title(path.read_text(encoding="utf-8")) for path in sorted(_FOLDER.glob("*.md"))}
    for name in sorted(written, key=[*_WRITTEN, *written].index):
        lines.append(f"- [{written[name]}]({name})" + (f": {_WRITTEN[name]}" if name in _WRITTEN else ""))
    return "\n".join(["# Reference", "", *lines, ""])


def _title(text: str) -> str:
    return text.splitlines()[0].removeprefix("# ")
