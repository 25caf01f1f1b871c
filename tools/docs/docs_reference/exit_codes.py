"""The page of exit statuses, from the table that `headwater --help` shows."""

from docs_reference.markdown import table
from headwater.errors import EXIT_CODES


def page() -> str:
    """The Markdown."""
    rows = [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    return "\n".join(
        [
            "# Exit codes",
            "",
            "A command tells a mistake in one sentence on standard error that begins with `headwater:`. It ends with",
            "one of these statuses, or with the one that the system gives to a process that a signal ended.",
            "",
            table(("Status", "Meaning"), rows),
        ]
    )
