"""Data quality: checks that jobs carry, and suites over pinned table versions.

`Check` is importable without Spark.
"""

from headwater_streams.quality.check import Action, Check, InvalidCheckError, Level, On

__all__ = ["Action", "Check", "InvalidCheckError", "Level", "On"]
