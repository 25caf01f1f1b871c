"""Repairs of session windows: sessions that touch each other folded again together."""
