"""A Delta table as a look-up: it is not streamed; each batch reads the whole table as it is then."""

from dataclasses import dataclass

from headwater_streams.base.names import require_table_name


@dataclass(frozen=True)
class LookupInput:
    """A table that a job enriches its rows from, with `hw.enrich` or `hw.as_of`. The job is a row-by-row one, or one
    with a window; for the latter the library writes the enriched rows into a table (`<target>__ingest_enriched`).

        dim.airports   version  6 ----------------- 7 ------------------>
        batches of the job         | 14 |   | 15 |      | 16 |   | 17 |
        read it at version            6        6           7        7

    A batch reads one version of it, the newest when the batch runs, and its ledger entry names that version
    (`extra.lookups`), so that a backfill reads what the batch read. A row is not computed again because the table
    changes later.

    Attributes:
        name: The table, `"dim.airports"`; any Delta table of the home, whatever writes it.
    """

    name: str

    def __post_init__(self) -> None:
        require_table_name("lookup", self.name)


def lookup(name: str) -> LookupInput:
    """Declares a Delta table as a look-up; see `LookupInput`."""
    return LookupInput(name)
