"""What single operators cost: deduplication by offset, row checks, a batch of one record.

Everything reads one topic of one broker, which grows: at each size every contender, in turns, goes on from its own
checkpoint over what came since, so that each is seen with little and with much behind it, and all share what else the
machine does. Tables, checkpoints and ledgers are those of `headwater jobs run --once`.

The library's jobs (`jobs`), all row by row into Delta:

- `none`: no deduplication, no checks; what the others are measured by.
- `by_offset`: `hw.by_offset()`; the offsets of Spark's own log tell what is new, no record is looked at.
- `origin`: `hw.by_offset(origin=True)`; each record's headers say where it first stood, and are looked at.
- `checks`: `none` with five row checks that quarantine and hold for all rows.
- `rejecting`: the same, and one more that one row in a thousand breaks: those go to quarantine.
- `warned`: the five with `action="warn"`, which count the rows of the result that break them.

And plain PySpark (`plain`): the same columns and coordinates into Delta, no ledger, no quarantine:

- `plain`: no deduplication.
- `drop_duplicates`: `dropDuplicates` on topic, partition and offset, with RocksDB, as its state outgrows a heap.
- `drop_duplicates_memory`: the same in Spark's default store, on the heap; not run unless it is named.
"""
