"""Streaming jobs as Python modules: operators, exactly-once Delta targets, the ledger and backfills."""
