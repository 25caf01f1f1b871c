"""Python and the JVM speak less often, and mean the same."""

import gc
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater_streams.spark.gateway import jvm_class


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the commands that py4j sends, by the method or the kind."""
    sent: Counter[str] = Counter()
    send = ClientServerConnection.send_command

    def counting(self: ClientServerConnection, command: str) -> str:
        lines = command.split("\n")
        sent[lines[2] if lines[0] == "c" else lines[0]] += 1
        answer: str = send(self, command)
        return answer

    monkeypatch.setattr(ClientServerConnection, "send_command", counting)
    return sent


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(["a"], id="one"),
        pytest.param(("a", "b"), id="a tuple"),
        pytest.param([1, 2.5, True, b"x"], id="of several types"),
        pytest.param([["a"], ["b", "c"]], id="of lists"),
        pytest.param([], id="empty"),
        pytest.param([None, 1], id="with nothing among it"),
        pytest.param(list(range(10)), id="the most that is handed over at once"),
        pytest.param(list(range(11)), id="more"),
    ],
)
def test_a_list_comes_to_the_jvm_as_it_is(spark: SparkSession, items: Any) -> None:
    there = jvm_class(spark, "java.util.ArrayList")(items)
    assert [_plain(each) for each in there] == [_plain(each) for each in items]


def _plain(item: Any) -> Any:
    return list(item) if not isinstance(item, str | bytes | int | float | None) else item


def test_a_short_list_takes_one_command(spark: SparkSession, commands: Counter[str]) -> None:
    functions = [F.lit(i).alias("x") for i in range(8)]
    commands.clear()
    F.array(*functions)
    assert commands["add"] == 0
    assert commands["of"] == 1


def test_a_columns_name_is_told_once(spark: SparkSession, commands: Counter[str]) -> None:
    F.col("told once"), F.lit(4711)
    commands.clear()
    F.col("told once"), F.lit(4711)
    assert sum(commands.values()) == 0


def test_literals_keep_their_types(spark: SparkSession) -> None:
    values = [1, True, 1.0, "1", None, 0, False, 0.0, "", b"1"]
    frame = spark.range(1).select(*[F.lit(value).alias(str(place)) for place, value in enumerate(values)])
    assert [kind for _, kind in frame.dtypes] == [
        "int", "boolean", "double", "string", "void", "int", "boolean", "double", "string", "binary",
    ]  # fmt: skip


def test_a_literal_of_minus_zero_keeps_its_sign(spark: SparkSession) -> None:
    found = spark.range(1).select(F.lit(0.0).cast("string"), F.lit(-0.0).cast("string")).first()
    assert found == ("0.0", "-0.0")


def test_a_name_means_the_column_of_the_frame_that_it_is_used_on(spark: SparkSession) -> None:
    one, other = spark.createDataFrame([(1,)], "a int"), spark.createDataFrame([("x",)], "a string")
    column = F.col("a")
    assert one.select(column).union(one.select(F.col("a"))).collect() == [(1,), (1,)]
    assert other.select(column, F.col("a").alias("b")).collect() == [("x", "x")]


@pytest.mark.story
def test_the_jvm_forgets_what_python_has_let_go_of(spark: SparkSession) -> None:
    gc.collect()
    _wait_until_still(_known(spark))  # other tests' objects are let go of meanwhile
    known, column = _known(spark), F.lit("x")
    columns = [column.alias(str(i)) for i in range(10_000)]
    assert known() > 8000
    del columns
    gc.collect()
    _wait_until(lambda: known() <= 1000)
    assert known() <= 1000


def test_the_jvm_forgets_though_a_connection_broke(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does when the process forks. It was the end of it: the JVM kept what Python let go of from then on."""
    client = spark.sparkContext._gateway._gateway_client
    connect, broken = client._get_connection, []

    def breaking() -> object:
        connection = connect()
        if threading.current_thread().name == "py4j-release" and len(broken) < 2:
            broken.append(connection)
            connection.socket.shutdown(socket.SHUT_RDWR)
        return connection

    known, column = _known(spark), F.lit("x")
    monkeypatch.setattr(client, "_get_connection", breaking)
    columns = [column.alias(str(i)) for i in range(2000)]
    del columns
    gc.collect()
    _wait_until(lambda: len(broken) == 2 and known() <= 1000)
    assert len(broken) == 2
    assert known() <= 1000


def test_what_py4j_is_known_by_stays(spark: SparkSession) -> None:
    """PySpark makes such an object to be called back, and lets go of it."""
    client = spark.sparkContext._gateway._gateway_client
    passing = JavaObject(GATEWAY_SERVER_OBJECT_ID, client)
    passing.getGateway()
    del passing
    gc.collect()
    _wait_until(lambda: not client.finalizer_deque)
    # The worker tells the JVM in turn: once this one is gone there, the one before was taken out and told.
    bindings, behind = _bindings(spark), jvm_class(spark, "java.util.ArrayList")()
    target = behind._target_id
    assert bindings.containsKey(target)
    del behind
    gc.collect()
    _wait_until(lambda: not bindings.containsKey(target))
    assert not bindings.containsKey(target)
    assert isinstance(_known(spark)(), int), "it would be refused"


def _known(spark: SparkSession) -> Callable[[], int]:
    """How many objects the JVM holds for Python, beyond those of now."""
    bindings = _bindings(spark)
    before = bindings.size()
    return lambda: int(bindings.size()) - before


def _bindings(spark: SparkSession) -> Any:
    """The JVM's map of the objects that it holds for Python, by their ids."""
    return spark.sparkContext._gateway.java_gateway_server.getGateway().getBindings()


def _wait_until_still(count: Callable[[], int]) -> None:
    """Waits until a count stays the same for half a second, a minute at most."""
    deadline_s = time.monotonic() + 60
    before = count() - 1
    while (now := count()) != before and time.monotonic() < deadline_s:
        before = now
        time.sleep(0.5)


def _wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, a minute at most."""
    deadline_s = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.02)
