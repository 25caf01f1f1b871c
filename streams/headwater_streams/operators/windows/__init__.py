"""Window operators: each takes a DataFrame, its time column and the windows' bounds."""

from headwater_streams.operators.windows.count import CountedRows, CountWindow, count_window
from headwater_streams.operators.windows.cumulative import CumulativeWindow, cumulative
from headwater_streams.operators.windows.grouping import Windowed
from headwater_streams.operators.windows.hopping import HoppingWindow, hopping
from headwater_streams.operators.windows.session import SessionWindow, session
from headwater_streams.operators.windows.spec import WindowSpec
from headwater_streams.operators.windows.tumbling import TumblingWindow, tumbling

__all__ = [
    "CountWindow",
    "CountedRows",
    "CumulativeWindow",
    "HoppingWindow",
    "SessionWindow",
    "TumblingWindow",
    "WindowSpec",
    "Windowed",
    "count_window",
    "cumulative",
    "hopping",
    "session",
    "tumbling",
]
