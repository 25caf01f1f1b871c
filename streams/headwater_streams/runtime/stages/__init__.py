"""The kinds of stage that run a job's batches, and what they are made of."""
