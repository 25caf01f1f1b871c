"""Which records a row was made of, and which rows a record became, through every job in between. It needs no Spark.

    topic clicks          gold.hourly__ingest_clicks       gold.hourly                        silver.busy
    0:17  --------------> row clicks 0 17  --------------> window, _sources [clicks 0 [3, 41)]  --> row clicks 0 3

Each table says in its ledger which topics and tables it was made of, and each row where it comes from: a row of a
record by its coordinates, a row of a join by the places of its two rows in `_sources`, a window by the ranges there,
from its first record to its last. A row made of a window or a pair has the coordinates of the first one's record.

A range of a window holds records of other windows, too. Which of them it counts is found by what both tables have: the
window's time, and the columns of its key. `_rows` says how many there must be, so that an answer is exact, or says what
it lacks (see `narrowing`). `history` and `narrowing` decide, on what `Tables` gives them; `home_tables` reads.
"""

from headwater_streams.ledger.trace.back import TracedInput, TracedRow, notes_of, records_of, trace_rows
from headwater_streams.ledger.trace.forth import Step, trace_record
from headwater_streams.ledger.trace.history import TableHistory, Tables
from headwater_streams.ledger.trace.home_tables import HomeTables
from headwater_streams.ledger.trace.places import Place, Span

__all__ = [
    "HomeTables",
    "Place",
    "Span",
    "Step",
    "TableHistory",
    "Tables",
    "TracedInput",
    "TracedRow",
    "notes_of",
    "records_of",
    "trace_record",
    "trace_rows",
]
