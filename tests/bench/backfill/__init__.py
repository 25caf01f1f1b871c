"""What backfills cost: their rate beside the live job and beside a hand-written query, and what the live job feels.

Everything runs on one machine, a broker in a process of its own. Jobs, checkpoints and ledgers are those of
`headwater jobs run`, backfills those of `headwater backfill`. The jobs (`jobs`): `clean`, row by row, from a topic of
readings, with a filter and five checks, into `silver.readings`; `by_device`, tumbling windows of five minutes over that
table; `by_device_of_topic`, the same windows with the topic as their only input.

- `speed`: each job over all that there is: `live`, from nothing to the end of the backlog in one go; `repair` and
  `rebuild`, run and verified over the same rows; `query`, the same in plain PySpark (`plain`), written by hand as a
  batch with Spark's defaults for its source, into Delta, with no ledger and no coordinates of batches. What they wrote
  is compared as bags of rows.
- `beside`: from the producer to the commit in the live job, with a steady trickle of events, without and with a
  repair of its older rows run at its side by `headwater backfill run` in a process of its own.
- `planning`: `plan` over a topic of a thousand partitions, in a session that is there, and as a command.
- `swapping`: swaps of a small table and of a large one: how long they take, for how long the live job is held, how many
  bytes of data and of logs they write.
"""
