"""Repairs of windows of fixed times: whole windows folded again."""
