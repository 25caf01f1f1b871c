"""A standalone cluster of Spark: whether its master answers, and whether it has given the session a worker."""

import logging
import time
from typing import TYPE_CHECKING

from headwater.errors import DependencyError
from headwater.stack.ports import accepts_connections, parse_address
from headwater_streams.spark.workers import has_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER_TIMEOUT_S = 5.0
_WORKER_WITHIN_S, _PAUSE_S = 10.0, 0.2
_log = logging.getLogger(__name__)


def require_master(master: str) -> None:
    """Sees to it that a standalone master is there; Spark asks for a minute, and ends in errors of its own.

    Raises:
        DependencyError: None of those named answers.
    """
    if not master.startswith("spark://"):
        return
    if not any(map(_answers, master.removeprefix("spark://").split(","))):
        raise DependencyError(
            f"no Spark master answers at {master}: start one, or give spark://HOST:PORT of another"
        )


def _answers(address: str) -> bool:
    try:
        return accepts_connections(*parse_address(address), _MASTER_TIMEOUT_S)
    except ValueError:
        return False


def tell_of_no_worker(session: "SparkSession") -> None:
    """Says so where the master has given the session no worker for some seconds; Spark waits without a word."""
    sc = session.sparkContext
    if not str(sc.master).startswith("spark://"):
        return
    until = time.monotonic() + _WORKER_WITHIN_S
    while not has_worker(session):
        if time.monotonic() >= until:
            _log.warning(
                "%s has given no worker yet, and jobs wait until it does: start one, or end a session that holds them",
                sc.master,
            )
            return
        time.sleep(_PAUSE_S)
