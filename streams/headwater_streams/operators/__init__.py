"""The operators of jobs: windows, joins, aggregates, deduplication; their declarations and their plans."""
