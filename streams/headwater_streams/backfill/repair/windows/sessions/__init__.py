"""Session windows: those that touch each other are folded again together."""
