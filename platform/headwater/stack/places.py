"""Where the things that belong to the Python environment, not to a `--home`, are kept."""

import sys
from collections.abc import Mapping
from pathlib import Path


def jars_dir(environ: Mapping[str, str]) -> Path:
    """The folder of the jars: `$HEADWATER_JARS`, else `share/headwater/jars` of the environment."""
    named = environ.get("HEADWATER_JARS")
    return Path(named).expanduser() if named else Path(sys.prefix) / "share" / "headwater" / "jars"


def pyspark_jars_dir() -> Path | None:
    """The `jars` folder of the installed PySpark wheel, without importing it; None if it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    return jars if jars.is_dir() else None
