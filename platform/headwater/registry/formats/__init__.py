"""What a schema is in each format: whether a text is one, how it is written in one way, and what it can read."""

from headwater.registry.formats.parsed import Parsed, Resolved, parse

__all__ = ["Parsed", "Resolved", "parse"]
