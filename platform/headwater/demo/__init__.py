"""The demo: a month of real flights through broker, jobs, tables and a backfill, every number proved.

- `flights` reads the data set, `events` plans the replay (pure, decided by the seed), `journal` remembers what was
  delivered, `producer` sends it;
- `oracle` computes from the CSV what every table must hold, `compare` names where a table differs;
- `run` starts the stack and the jobs and brings it all together.
"""
