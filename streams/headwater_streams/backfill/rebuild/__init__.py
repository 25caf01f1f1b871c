"""Rebuilds: a job's table made anew beside the live one, which it replaces with its checkpoint in one commit.

    live      generation 1   o---o---o---o---o---o---|
    shadow    generation 2   o----------o------o--o--|--o---o---    swapped in here; the live job goes on with it

The shadow is the job's own next generation: the same stages, run by the same runner, on tables and a checkpoint in the
backfill's folder. It reads the inputs from their beginning, so what a job keeps in its state (windows, waiting rows of
joins, keys) is as if it had always run with this code. Any kind of job can be rebuilt. The jobs that read its tables
stop at the swap (see `runtime.replaced`) until theirs are rebuilt, too: after it from what feeds them then, or before
it from what the shadows of those before them hold (see `behind`).
"""
