"""Names that people choose: how SQL quotes them, when two are the same, which ones columns, tables and jobs may have.

A column may have almost any name. The names of jobs and tables are plain: they are names of files, too, and stand in
marks of Delta's log, in ZooKeeper and as groups of consumers. A name that is not allowed is refused with a sentence
before anything is written.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from headwater_streams.base.errors import JobDefinitionError

_JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")
_MOST_CHARACTERS = 240
"""Of the names of jobs and tables with what the library puts behind them. A file's name has 255 bytes, on Linux, macOS
and Windows alike; the rest is for what distinguishes copies and backfills."""
_NOT_OF_DELTA = " ,;{}()="
"""Delta allows these only with column mapping, which many of its readers do not know."""
RECORD_COLUMNS = ("_key", "_headers")
"""A record's own columns beside its coordinates: a job's function may use them by their names, and does not see them
otherwise."""
_CONTROL = ("Cc", "Cs")
"""Unicode's categories of control characters and of halves of surrogate pairs."""


def quoted(name: str) -> str:
    """A name as Spark's SQL has it, whatever characters it has.

    Example:
        >>> print(quoted("Product.Id"), quoted("a`b"))
        `Product.Id` `a``b`
    """
    return f"`{name.replace('`', '``')}`"


def folded(name: str) -> str:
    """A text that is equal for names that are one to Spark: `ID` and `id`, and also `k` and U+212A, the sign of kelvin.

    It compares as Java does, letter by letter, in capitals and then in small letters.
    """
    return "".join(map(_small, name))


def _small(letter: str) -> str:
    capital = letter.upper()
    return (capital if len(capital) == 1 else letter).lower()[:1]


def named_twice(names: Iterable[str]) -> str | None:
    """The first name that Spark and Delta take for one before it."""
    seen: set[str] = set()
    for name in names:
        if folded(name) in seen:
            return name
        seen.add(folded(name))
    return None


def twins(names: Iterable[str], others: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs of a name and another one of `others` that are one to Spark, but are written otherwise."""
    by_folded = {folded(other): other for other in others}
    for name in names:
        other = by_folded.get(folded(name), name)
        if other != name:
            yield name, other


def may_name(text: str, column: str) -> bool:
    """Whether SQL may name a column: a word of it, or of a text in it, is the column's name.

    Example:
        >>> may_name("upper(Carrier) = 'UA'", "carrier"), may_name("carriers > 1", "carrier")
        (True, False)
    """
    return any(
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
        for name in (column, quoted(column))
    )


def is_reserved(column: str) -> bool:
    """Whether only the library's own columns may have such a name.

    Example:
        >>> is_reserved("_offset"), is_reserved("offset")
        (True, False)
    """
    return column.startswith("_")


def hidden_hint(column: str) -> str:
    """What a sentence about a column that is not there adds where it may be a hidden one; nothing for other names.

    Example:
        >>> hidden_hint("_key"), hidden_hint("customer")
        ('; _key is hidden: give it another name before', '')
    """
    return f"; {column} is hidden: give it another name before" if is_reserved(column) else ""


def column_problem(name: str) -> str | None:
    """Why a table cannot have a column of this name, as a predicate for a sentence; None where it can.

    Example:
        >>> column_problem("Product Id")
        "has ' ', and no column of a table has a blank, a control character or one of ,;{}()="
        >>> column_problem("Product.Id") is None
        True
    """
    wrong = (each for each in name if each in _NOT_OF_DELTA or unicodedata.category(each) in _CONTROL)
    character = next(wrong, None)
    if character is not None:
        others = f"a blank, a control character or one of {_NOT_OF_DELTA.strip()}"
        return f"has {character!r}, and no column of a table has {others}"
    if name.startswith("."):
        return "begins with a dot, and no column of a table does"  # Arrow takes it for a path
    return None if name else "is called nothing, and each column of a table has a name"


def plain_name(name: str) -> str:
    """A name like this one that a column of a table may have.

    Example:
        >>> plain_name("Product Id"), plain_name(" (total)")
        ('Product_Id', 'total')
    """
    return re.sub(r"\W+", "_", name).strip("_") or "name"


def is_table_name(name: str) -> bool:
    """Whether a name is `schema.table`."""
    return _TABLE.fullmatch(name) is not None


def require_table_name(what: str, name: str, longest: str = "") -> None:
    """Checks that a name is that of a table, and that its folder can be made.

    Args:
        what: What is declared, as "table" or "lookup".
        name: Its name.
        longest: What a table beside it has behind that name.

    Raises:
        JobDefinitionError: It is not `schema.table`, or longer than the name of a folder may be.
    """
    if not isinstance(name, str) or not is_table_name(name):
        raise JobDefinitionError(
            f"{what} {name!r}: write schema.table, both of letters, digits and '_', none with a digit first"
        )
    _require_length(what, name, longest)


def require_job_name(name: str) -> None:
    """Checks that a job can have this name: its checkpoint's folder has it, and what shows its progress.

    Raises:
        JobDefinitionError: It cannot.
    """
    if not isinstance(name, str) or not _JOB.fullmatch(name):
        raise JobDefinitionError(
            f"job {name!r}: a job's name is of the letters a to z and A to Z, digits, '_', '-' and '.', with none of "
            "the last two first; write name='another'"
        )
    _require_length("job", name)


def _require_length(what: str, name: str, behind: str = "") -> None:
    if len(name + behind) > _MOST_CHARACTERS:
        with_it = f" with {behind!r} behind it" if behind else ""
        raise JobDefinitionError(
            f"{what} {name!r}: it is the name of a folder, of {len(name + behind)} characters{with_it}, and may have "
            f"{_MOST_CHARACTERS}; take a shorter one"
        )


def is_file_name(name: str) -> bool:
    """Whether a name from outside is that of a file in a folder, and leads nowhere else."""
    return name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)
