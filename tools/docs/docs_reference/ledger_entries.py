"""The page of ledger entries: the format's own documentation, which stands with the code, its terms and its keys."""

import ast
import inspect
from collections.abc import Iterator

from docs_reference.markdown import code, docstring, plain, table
from headwater_streams.base import extra
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
            "## Keys of extra",
            "",
            table(("Key", "Meaning"), [(code(key), plain(meaning)) for key, meaning in keys_of_extra()]),
        ]
    )


def keys_of_extra() -> Iterator[tuple[str, str]]:
    """Each key with its meaning, which is the string behind its assignment."""
    (declared,) = ast.parse(inspect.getsource(extra.Extra)).body
    assert isinstance(declared, ast.ClassDef)
    for before, node in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(before, ast.Assign) and isinstance(before.targets[0], ast.Name):
            assert isinstance(node, ast.Expr)
            yield getattr(extra.Extra, before.targets[0].id), ast.literal_eval(node.value)
