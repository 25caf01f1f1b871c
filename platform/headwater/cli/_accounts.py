"""What became of the rows that a job read, as `headwater jobs run` and `jobs status` print it."""

from collections.abc import Iterator, Mapping, Sequence

from headwater_streams.base.plural import quantity

_OF_A_TABLE = ("exploded", "written", "filtered")
"""The terms that differ from table to table of one job; of these no sum is a number of records."""


def account_of(targets: Sequence[str], tables: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What became of a job's records: its table's account, or what is the same in the accounts of all its tables.

    Args:
        targets: The job's tables, the first the one that a batch is committed to last.
        tables: The account of each.
    """
    of_first = tables.get(targets[0], {})
    return {term: n for term, n in of_first.items() if len(targets) == 1 or term not in _OF_A_TABLE}


def describe_run(
    job: str, batches: int, targets: Sequence[str], tables: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """A line for a job's run, and one for each table if it has several."""
    account = account_of(targets, tables)
    became = describe_terms({term: n for term, n in account.items() if term != "read"})
    read = (
        ", ".join(filter(None, [f"{account.get('read', 0):,} read", became])) if any(account.values()) else ""
    )
    yield ": ".join(filter(None, [job, quantity(batches, "batch", "batches"), read]))
    if len(targets) > 1 and any(tables.values()):
        for name in targets:
            terms = {term: tables[name][term] for term in _OF_A_TABLE if term in tables.get(name, {})}
            yield f"  {name}: {describe_terms(terms, several=True) or '0 written'}"


def describe_terms(terms: Mapping[str, int], *, several: bool = False) -> str:
    """The terms that are not 0, as text.

    Of one of several tables, `filtered` also counts the rows that went to the job's other tables. A dimension's change
    events are in effect while one of its rows stands for them; `held` is by how many these have grown. Terms can be
    negative: rows that wait, in open windows or for a partner, get fewer in a run that writes older ones, and a
    function that makes several rows of a record on the way to a window, as explode does, filters fewer than none. In a
    row-by-row job `exploded` is the number of records that became rows, and `written` that of the rows.
    """
    named = {"filtered": "filtered or of other tables"} if several else {}
    if "exploded" in terms:
        named["written"] = "rows written"
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
