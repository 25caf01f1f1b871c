"""The page of ledger entries: the format's own documentation, which stands with the code, and its terms."""

from docs_reference.markdown import code, docstring, table
from headwater_streams.base import ledger_entry as entry


def page() -> str:
    """The Markdown."""
    rows = [(code(kind), code("read = " + " + ".join(terms))) for kind, terms in entry.TERMS.items()]
    first, rest = docstring(entry.__doc__).split("\n", 1)
    return "\n".join(
        [
            "# Ledger entries",
            "",
            first,
            rest,
            "## Terms",
            "",
            "The terms of an input add up to the rows that were read of it. Which terms there are depends on the kind:",
            "",
            table(("Kind", "Terms"), rows),
        ]
    )
