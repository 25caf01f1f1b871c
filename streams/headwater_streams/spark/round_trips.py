"""Fewer round trips between Python and the JVM, each of which costs a small batch a quarter of a millisecond.

py4j fills a list by a call for each item, and releases each object that Python no longer has by a call of its own: two
thirds of the calls of a small batch.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.protocol import (
    ENTRY_POINT_OBJECT_ID,
    GATEWAY_SERVER_OBJECT_ID,
    MEMORY_COMMAND_NAME,
    MEMORY_DEL_SUBCOMMAND_NAME,
    register_input_converter,
)
from pyspark.sql import SparkSession

from headwater_streams.spark.gateway import KnownClass, jvm_class
from headwater_streams.spark.plain_ways import or_plainly

_MOST_ITEMS = 10
_STAYING = {ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID}
"""The ids of py4j's own objects."""
_PAUSE_S, _ANSWER_S, _AT_ONCE = 0.2, 60.0, 500
_log = logging.getLogger(__name__)


_CLASSES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.types.Metadata",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)


def _as_py4j_does(_: SparkSession) -> None:
    """PySpark and py4j do it call by call."""


@or_plainly(_as_py4j_does)
def know_classes(spark: SparkSession) -> None:
    """Looks up once the classes that PySpark looks up for each column, some of them by a last name for which the JVM
    searches every jar."""
    for name in _CLASSES:
        jvm_class(spark, name)


@or_plainly(_as_py4j_does)
def few_round_trips(spark: SparkSession) -> None:
    """Makes py4j hand over short lists and release objects by few calls, from now on in this process."""
    _hand_over_lists()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark's only door to py4j
    client = gateway._gateway_client  # noqa: SLF001
    if not isinstance(client.finalizer_deque, _Released):
        client.finalizer_deque = _Released()
        threading.Thread(target=client.finalizer_deque.work, name="py4j-release", daemon=True).start()


class _ListConverter:
    """Hands a short list to the JVM in one call; `java.util.List.of` takes up to ten items, and no null."""

    def can_convert(self, items: object) -> bool:
        if not isinstance(items, list | tuple) or not 0 < len(items) <= _MOST_ITEMS:
            return False
        return all(item is not None for item in items)

    def convert(self, items: Sequence[Any], client: Any) -> Any:
        return _java_list(client).of(*items)


@cache
def _java_list(client: Any) -> KnownClass:
    return KnownClass("java.util.List", client)


@cache
def _hand_over_lists() -> None:
    register_input_converter(_ListConverter(), prepend=True)


class _Released(deque[Any]):
    """The objects that py4j is to release: pairs of its client and an object's id. One call releases many."""

    def work(self) -> None:
        """Releases objects until py4j is shut down or the JVM is gone."""
        while True:
            released = [self.pop() for _ in range(min(len(self), _AT_ONCE))]
            if SHUTDOWN_FINALIZER_WORKER in released:
                return
            if not released:
                time.sleep(_PAUSE_S)
                continue
            client, targets = released[0][0], [target for _, target in released if target not in _STAYING]
            # A connection can break: a forked child closes those of its parent's other threads, as py4j sees these end
            # in the child. The JVM ignores an object that it has released already.
            while not _release(client, targets):
                time.sleep(_PAUSE_S)
                if not _answers(client):
                    return


def _release(client: Any, targets: Sequence[str]) -> bool:
    """Releases objects, as py4j's own worker does one at a time; False where the JVM did not answer."""
    head = MEMORY_COMMAND_NAME + MEMORY_DEL_SUBCOMMAND_NAME
    commands = "".join(f"{head}{target}\ne\n" for target in targets).encode()
    connection = None
    try:
        connection = client._get_connection()  # noqa: SLF001 - py4j has no public door for several commands
        connection.socket.settimeout(_ANSWER_S)
        connection.socket.sendall(commands)
        answers = [connection.stream.readline() for _ in targets]
        if all(answers):
            client._give_back_connection(connection)  # noqa: SLF001
            return True
    except Exception:  # as py4j's worker: if it ended, the JVM would never release objects again
        _log.debug("objects are released once more", exc_info=True)
    if connection is not None:
        connection.close()  # the next one is another
    return False


def _answers(client: Any) -> bool:
    """Whether the JVM still accepts connections."""
    try:
        where = client.java_parameters
        socket.create_connection((where.address, where.port), _ANSWER_S).close()
    except OSError:
        return False
    return True
