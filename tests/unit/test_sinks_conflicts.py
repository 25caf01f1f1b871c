"""Delta's conflicts are caught as what they are from the first one on."""

import subprocess
import sys

_FRESH = """
import headwater_streams.delta.delta_table
from pyspark.errors.exceptions import captured
print(captured.convert_exception.__module__)
"""


def test_sinks_conflicts_are_known_before_the_first_one() -> None:
    found = subprocess.run([sys.executable, "-c", _FRESH], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "delta.exceptions.captured"
