"""Which faults a running job is tried again after, and when."""

import errno
import random
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from amount import drawn_seed
from headwater_streams.base.errors import (
    CheckFailedError,
    DataLossError,
    FailingRowsFoundError,
    JobDefinitionError,
    LeaseLostError,
    OwnershipError,
    RefusedError,
    SourceReplacedError,
    StreamsError,
    SupersededError,
    UnavailableError,
)
from headwater_streams.runtime.faults import fault_of, passes, speaks_of_loss
from headwater_streams.runtime.query import explain
from headwater_streams.runtime.restarts import BackOff, Fault

AWAY = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes"


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("the broker does not answer"),
        LeaseLostError("the session may be over"),
        SourceReplacedError("version 3 put other rows in the place"),
        RuntimeError(AWAY),
        RuntimeError("Cannot fetch record for offset 17 in 30000 milliseconds"),
        RuntimeError("java.net.ConnectException: Connection refused"),
        RuntimeError("java.net.UnknownHostException: login.example.org"),
        RuntimeError(
            "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer\n"
            "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers"
        ),
    ],
    ids=repr,
)
def test_fault_of_what_is_away_passes(error: Exception) -> None:
    assert passes(error)


@pytest.mark.parametrize(
    "error",
    [
        DataLossError(AWAY),
        CheckFailedError("delay_sane"),
        JobDefinitionError("no topic"),
        OwnershipError("another driver runs it"),
        StreamsError("something else"),
        RuntimeError("[UNRESOLVED_COLUMN] no such column"),
        ZeroDivisionError("division by zero"),
    ],
    ids=repr,
)
def test_fault_that_a_person_must_mend_does_not_pass(error: Exception) -> None:
    assert not passes(error)


def test_why_a_client_in_spark_does_not_start_is_told() -> None:
    def exception(text: str, cause: Any = None) -> Any:
        return SimpleNamespace(toString=lambda: text, getMessage=lambda: text, getCause=lambda: cause)

    token = exception("Malformed JWT provided; expected three sections\nand more")
    outer = exception("Failed to create new KafkaAdminClient", exception("LoginException", token))
    error = RuntimeError("Failed to create new KafkaAdminClient")
    error._origin = outer  # type: ignore[attr-defined]
    assert explain(error) == (
        "Failed to create new KafkaAdminClient (Malformed JWT provided; expected three sections)"
    )


def test_fault_cause_inside_the_jvm_is_looked_at() -> None:
    inner = SimpleNamespace(toString=lambda: AWAY, getCause=lambda: None)
    outer = SimpleNamespace(
        toString=lambda: "java.util.concurrent.ExecutionException", getCause=lambda: inner
    )
    error = RuntimeError("An error occurred while calling o260.count")
    error.java_exception = outer  # type: ignore[attr-defined]
    assert passes(error)
    told = RuntimeError("batch failed")
    told.__cause__ = error
    assert passes(told)
    assert explain(told) == (
        "a broker does not answer (TimeoutException: Timed out waiting for a node assignment. Call: listNodes)"
    )


def test_fault_lost_input_is_told_from_a_broker_that_is_away() -> None:
    assert speaks_of_loss(
        RuntimeError("Some data may have been lost because they are not available in Kafka")
    )
    assert not speaks_of_loss(RuntimeError(AWAY))
    assert not speaks_of_loss(DataLossError("data may have been lost"))


def test_back_off_doubles_up_to_its_longest_pause() -> None:
    seed = drawn_seed()
    rng, back_off = random.Random(seed), BackOff(1.0, 60.0)
    for failures, whole_s in enumerate([1, 2, 4, 8, 16, 32, 60, 60, 60], 1):
        assert whole_s / 2 <= back_off.pause_s(failures, rng) <= whole_s, seed
    assert back_off.pause_s(10_000, rng) <= 60


@pytest.mark.parametrize(
    ("error", "has_run", "fault"),
    [
        (SupersededError("generation 2 now"), True, Fault.AGAIN),
        (FailingRowsFoundError("run without them"), True, Fault.AGAIN),
        (SourceReplacedError("other rows"), True, Fault.PASSES),
        (SourceReplacedError("other rows"), False, Fault.REFUSED),
        (JobDefinitionError("no such column"), True, Fault.REFUSED),
        (UnavailableError("away"), False, Fault.PASSES),
        (RefusedError("the broker refuses 'alice'"), False, Fault.STAYS),
        (RefusedError("the broker refuses 'alice'"), True, Fault.UNKNOWN),
        (OSError(errno.ENOSPC, "No space left on device"), True, Fault.PASSES),
        (RuntimeError("java.io.IOException: No space left on device"), True, Fault.PASSES),
        (RuntimeError("Job aborted: ExecutorLostFailure (executor 3 exited)"), True, Fault.PASSES),
        (CheckFailedError("delay_sane"), True, Fault.STAYS),
        (DataLossError("offsets [3, 9) are gone"), True, Fault.STAYS),
        (RuntimeError("Some data may have been lost because they are not available"), True, Fault.STAYS),
        (AnalysisException("[UNRESOLVED_COLUMN] no such column"), True, Fault.STAYS),
        (RuntimeError("something that nobody has seen before"), True, Fault.UNKNOWN),
    ],
    ids=repr,
)
def test_fault_says_whether_another_start_helps(error: Exception, has_run: bool, fault: Fault) -> None:
    assert fault_of(error, has_run=has_run) is fault
