"""A job understood, before it runs: its kind, its chain, its keys, and what its declaration requires."""
