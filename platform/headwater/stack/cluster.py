"""A standalone cluster of Spark: whether its master answers, and has given the session a worker."""

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
    """Requires that a standalone master answers; Spark itself tries for a minute, then fails with other errors.

    Raises:
        DependencyError: None of the named masters answers.
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


def warn_without_worker(session: "SparkSession") -> None:
    """Warns if the master has not given the session a worker within some seconds; Spark waits in silence."""
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
