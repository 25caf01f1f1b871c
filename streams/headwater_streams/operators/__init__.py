"""The operators of jobs: windows, joins, aggregates, deduplication; each declared and built here."""
