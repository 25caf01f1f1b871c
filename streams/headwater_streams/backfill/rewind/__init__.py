"""Rewinds: a job's tables, checkpoint and offsets put back together to an earlier commit, and run forward again.

    generation 1   o---o---o---o---o        batches, each with a version of the table
                           |
    generation 2           o---o---o---     the same rows, state and offsets, as of the third; then the records again

Each batch of a job with several tables is a commit in each, and all of them are put back to the same batch: the side
tables first, then the others, the target last. (A dimension's table of changes goes back to the last batch up to it
that had any to keep.) The target's commit begins the generation; a job whose other tables are ahead of it waits until
the swap is made again, or rolled back.

The rows, the files of the state and the offsets are those that were there, so nothing is computed; what came after is
read once more when the job goes on. A rewind is a generation of its own, for Delta keeps the marks of the batches that
were taken back. How far back one can go is how long Spark keeps a checkpoint's batches (100), and how long the
topics keep their records.
"""
