"""Headwater's face: `import headwater as hw` gives the job API; beside it the CLI, the configuration, the stack.

`dir(hw)` lists the API's names, and `help(hw.job)`, `help(hw.tumbling)`, `help(hw.join)`, ... tell of each. It needs
PySpark and is loaded when its first name is used, so that a broker or the CLI runs without it. `hw.backfill` has the
verbs of `headwater backfill`, `hw.trace` what `headwater trace` prints, `hw.audit` audits, `hw.quality` has what checks
came to and rejected, and `hw.load` and `hw.replay` are the commands of these names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater import audit as audit
    from headwater import backfill as backfill
    from headwater import quality as quality
    from headwater import trace as trace
    from headwater.loads import load as load
    from headwater.replays import replay as replay
    from headwater_streams.api import *  # noqa: F403

__version__ = "0.1.0"


def __dir__() -> list[str]:
    try:
        from headwater_streams import api
    except ModuleNotFoundError:
        return ["__version__"]
    return sorted([*api.__all__, "__version__", "audit", "backfill", "load", "quality", "replay", "trace"])


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        from headwater_streams import api
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"headwater.{name} needs {error.name}; install it with: pip install 'headwater[spark]'"
        ) from error
    if name in ("audit", "backfill", "quality", "trace"):
        return import_module(f"headwater.{name}")
    if name in ("load", "replay"):
        return getattr(import_module(f"headwater.{name}s"), name)
    if name not in api.__all__:
        raise AttributeError(f"headwater has no {name!r}; it has {', '.join(api.__all__)}")
    return getattr(api, name)
