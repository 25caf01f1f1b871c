"""Window operators: each takes a DataFrame, its time column and its bounds, and gives a DataFrame."""

from headwater_streams.windows.tumbling import TumblingWindow, Windowed, tumbling

__all__ = ["TumblingWindow", "Windowed", "tumbling"]
