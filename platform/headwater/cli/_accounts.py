"""What became of the rows that a job read, as `headwater jobs run` and `jobs status` print it."""

from collections.abc import Iterator, Mapping, Sequence

from headwater_streams.base.plural import counted

_OF_A_TABLE = ("written", "filtered")
"""The terms that differ from table to table of one job; of these no sum is a number of records."""


def account_of(targets: Sequence[str], tables: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What became of a job's records: its table's account, or what is the same in the accounts of all its tables.

    Args:
        targets: The job's tables, the first the one that a batch is committed to last.
        tables: The account of each.
    """
    of_first = tables.get(targets[0], {})
    return {term: n for term, n in of_first.items() if len(targets) == 1 or term not in _OF_A_TABLE}


def told_of(
    job: str, batches: int, targets: Sequence[str], tables: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """A job's run in a line, and in one more for each table where it has several."""
    account = account_of(targets, tables)
    became = terms_told({term: n for term, n in account.items() if term != "read"})
    read = (
        ", ".join(filter(None, [f"{account.get('read', 0):,} read", became])) if any(account.values()) else ""
    )
    yield ": ".join(filter(None, [job, counted(batches, "batch", "batches"), read]))
    if len(targets) > 1 and any(tables.values()):
        for name in targets:
            terms = {term: tables.get(name, {}).get(term, 0) for term in _OF_A_TABLE}
            yield f"  {name}: {terms_told(terms, several=True) or '0 written'}"


def terms_told(terms: Mapping[str, int], *, several: bool = False) -> str:
    """The terms that are not 0; of one of several tables, rows that another one has are in the term `filtered`, too.

    Of a dimension's change events those are in effect that its rows stand for: `held` is by how many they have grown.
    Rows that wait, in open windows or for a partner, are fewer behind a run that wrote those of before; a function that
    makes several rows of a record, as explode does on the way to a window, filters fewer than none.
    """
    named = {"filtered": "filtered or of other tables"} if several else {}
    fewer = {"filtered": "added by the function", "held": "fewer in effect"}
    if "changed" in terms:  # of a dimension; the others keep rows for partners to come
        named |= {"kept": "kept in the table of changes", "held": "more in effect"}
    else:
        named["kept"] = "kept to be joined"
    return ", ".join(
        f"{n:,} {named.get(term, term)}" if n > 0 else f"{-n:,} {fewer.get(term, f'fewer {term}')}"
        for term, n in terms.items()
        if n
    )
