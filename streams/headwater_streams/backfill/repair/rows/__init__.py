"""Repairs of row-by-row jobs: records, or rows of a table, read again by their offsets."""
