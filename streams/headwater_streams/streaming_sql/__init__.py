"""Streaming SQL: a `.sql` file of `CREATE STREAMING TABLE` statements is a module of jobs.

    CREATE STREAMING TABLE gold.delays (
      CONSTRAINT has_carrier EXPECT (carrier IS NOT NULL)                         -- else into quarantine
    )
    WITH (mode = 'update')
    AS SELECT carrier, window_start, count(*) AS departures, avg(delay_minutes) AS avg_delay
    FROM stream(silver.departures, event_time => 'departed_at', watermark => '30 minutes')
    WHERE delay_minutes IS NOT NULL
    GROUP BY carrier, window(departed_at, '1 hour');

Each statement becomes the job that a Python module would have declared, run and backfilled the same way:

- Expressions are Spark's own SQL, and columns are named in any case. `SELECT ... FROM ... [WHERE ...]` is a row-by-row
  job.
- `FROM topic('name', schema => ..., event_time => ..., watermark => ...)`, `FROM stream(schema.table, ...)` or plainly
  `FROM schema.table` are the job's inputs; the arguments are those of `hw.topic` and `hw.table`, formats of values are
  written as `format => csv(sep => ';')`, and an event time that is computed as it is, `event_time =>
  timestamp_millis(ts_ms)`. `_key`, `_timestamp` and `_headers['name']` of a topic's records are columns.
- `GROUP BY` columns and one of `window(time, size)`, `window(time, size, every)`, `cumulate(time, step, size)`,
  `session_window(time, gap)` and `count_window(time, rows)` is `hw.tumbling`, `hw.hopping`, `hw.cumulative`,
  `hw.session` or `hw.count_window`; columns alone are `hw.grouped`, which wants `WITH (state = 'unbounded')`.
  `window_start` and `window_end` are columns, and `window_index` of a count window.
- `FROM a JOIN b ON a.k = b.k AND b.time BETWEEN a.time AND a.time + INTERVAL 24 HOURS` is `hw.join`; `LEFT`, `RIGHT`,
  `FULL` and `LEFT SEMI` before `JOIN` are its `how`. Pairs (`JOIN`, `LEFT SEMI JOIN`) may be grouped by a window over
  one of the two times: a chain of operators, see `hw.job`.
- `FROM a LATERAL VIEW [OUTER] explode(lines) t AS line` makes a row of each element, with its place in the record,
  `_row`; so do `posexplode` and `inline`, and each of them in `SELECT`.
- `SELECT ... UNION ALL SELECT ...` is `hw.union`; as in SQL, columns go by their places and have the first one's names.
- `CONSTRAINT name EXPECT (condition) [ON INPUT | ON OUTPUT] [ON VIOLATION QUARANTINE | FAIL | WARN]` is `hw.check`,
  which looks at the input's rows for quarantine and at the result's otherwise; a condition over aggregates judges the
  batch.
- `WITH (...)` has `mode`, `keys` (an updating table's are the grouping's columns by default), `dedup`
  (`by_offset(origin => true)`), `late`, `name` (by default the table's, without its schema) and `state`;
  `mode = 'scd1'` or `'scd2'` is `hw.scd1` or `hw.scd2`, with `sequence_by`, `apply_as_deletes`, `except_columns` and
  `track_history_columns`; `keep = '90 days'` lets go of older rows.
- `PARTITIONED BY (days(departed_at), carrier)`, `CLUSTER BY (carrier)`, `COMMENT 'text'` and
  `TBLPROPERTIES ('name' = 'value')` before `AS`, in any order, and `carrier COMMENT 'text'` in the brackets, say how
  the table is laid out, as `hw.delta` does. `days`, `years`, `months` and `hours` of a time make a column of it.

Errors name the file and the line, before anything runs.
"""

from headwater_streams.streaming_sql.load import load_each_sql, load_sql

__all__ = ["load_each_sql", "load_sql"]
