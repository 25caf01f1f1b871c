"""Repairs of windows: whole windows folded again from all their rows."""
