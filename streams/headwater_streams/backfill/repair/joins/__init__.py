"""Repairs of joins of two streams: left rows joined again."""
