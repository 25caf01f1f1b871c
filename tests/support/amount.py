"""How much a random test tries, and with which seed: little for each change, all of it in `make test-all`."""

from __future__ import annotations

import os
import random

LANE = "HEADWATER_LANE"
"""The lane of this run, which `lanes` sets before test modules are imported; all tests by default."""


def amount(variable: str = "", *, small: int, full: int) -> int:
    """Examples, histories, rounds or steps of a random test.

    Args:
        variable: An environment variable that sets it to another number, in any lane.
        small: Of the lanes `check` and `test`, which each draw anew: over the days they see as much.
        full: Of the lane `all`.
    """
    if variable and variable in os.environ:
        return int(os.environ[variable])
    return full if os.environ.get(LANE, "all") == "all" else small


def drawn_seed() -> int:
    """The seed of a random test: a new one each time, or `HEADWATER_SEED`; it is printed for a failure to show it."""
    seed = int(os.environ.get("HEADWATER_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADWATER_SEED={seed}")
    return seed
