"""Testing a job without a broker: see `JobDriver`."""

from headwater_streams.testing.driver import JobDriver, SimulatedCrash
from headwater_streams.testing.record_log import RecordLog

__all__ = ["JobDriver", "RecordLog", "SimulatedCrash"]
