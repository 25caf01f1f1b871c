"""The transaction coordinator's decisions, case by case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater_broker.transactions import (
    HERE,
    Origin,
    PendingOffset,
    Producer,
    ProducerIdNeeded,
    Transaction,
    TransactionCoordinator,
    TransactionError,
    TransactionRefused,
    TransactionState,
    Transition,
    partition_for,
)
from headwater_broker.transactions.state import MAX_EPOCH

ID = "worker"
T0, T1 = ("t", 0), ("t", 1)
OFFSETS = {("in", 0): PendingOffset(5)}
OTHER = Producer(99, 0)


class Driver:
    """A coordinator whose decisions are stored at once."""

    def __init__(self) -> None:
        self.coordinator = TransactionCoordinator(max_timeout_ms=1000, expiration_ms=5000)
        self.now_ms = 100
        self.next_id = 7

    def apply(self, transition: Transition | None) -> Transaction | None:
        if transition is not None:
            self.coordinator.apply(transition)
            return transition.after
        return None

    def init(self, expected: Producer | None = None, timeout_ms: int = 500) -> Producer:
        try:
            transition = self.coordinator.init_producer(self.now_ms, ID, timeout_ms, expected)
        except ProducerIdNeeded:
            fresh, self.next_id = self.next_id, self.next_id + 1
            transition = self.coordinator.init_producer(self.now_ms, ID, timeout_ms, expected, fresh)
        after = self.apply(transition)
        assert after is not None
        if after.state.is_prepared:
            raise TransactionRefused(TransactionError.CONCURRENT_TRANSACTIONS, "")
        return after.producer

    def add(self, producer: Producer, *partitions: tuple[str, int], groups: tuple[str, ...] = ()) -> None:
        self.apply(self.coordinator.add(self.now_ms, ID, producer, partitions, groups))

    def stage(self, producer: Producer, group: str = "g", origin: Origin = HERE) -> None:
        self.apply(self.coordinator.stage_offsets(self.now_ms, ID, producer, group, OFFSETS, origin))

    def end(self, producer: Producer, *, commit: bool = True, origin: Origin = HERE) -> Transaction | None:
        transition = self.coordinator.end(self.now_ms, ID, producer, commit=commit, origin=origin)
        return self.apply(transition)

    def complete(self) -> None:
        self.apply(self.coordinator.complete(self.now_ms, ID))

    @property
    def state(self) -> TransactionState:
        return self.coordinator.describe(ID).state


@pytest.fixture
def driver() -> Driver:
    return Driver()


def refused(error: TransactionError, ask: Callable[[], object]) -> None:
    with pytest.raises(TransactionRefused) as refusal:
        ask()
    assert refusal.value.error is error


def test_partition_for_is_kafkas_choice() -> None:
    assert partition_for("", 50) == 0
    assert partition_for("a", 50) == 97 % 50
    assert (
        partition_for("polygenelubricants", 50) == 0
    )  # its hash is the one number without an absolute value
    assert partition_for("\U0001f600", 1000) == (0xD83D * 31 + 0xDE00) % 1000


def test_init_new_id_needs_a_producer_id_and_begins_with_epoch_0(driver: Driver) -> None:
    with pytest.raises(ProducerIdNeeded):
        driver.coordinator.init_producer(0, ID, 500)
    assert driver.init() == Producer(7, 0)
    assert driver.state is TransactionState.EMPTY


def test_init_again_raises_the_epoch_and_fences(driver: Driver) -> None:
    first = driver.init()
    assert driver.init() == Producer(7, 1)
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.add(first, T0))
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.end(first))
    refused(TransactionError.INVALID_PRODUCER_ID_MAPPING, lambda: driver.add(OTHER, T0))


@pytest.mark.parametrize("timeout_ms", [0, -1, 1001])
def test_init_timeout_out_of_bounds_refused(driver: Driver, timeout_ms: int) -> None:
    refused(TransactionError.INVALID_TRANSACTION_TIMEOUT, lambda: driver.init(timeout_ms=timeout_ms))


def test_init_while_open_aborts_under_an_epoch_that_nobody_has(driver: Driver) -> None:
    first = driver.init()
    driver.add(first, T0)
    refused(TransactionError.CONCURRENT_TRANSACTIONS, driver.init)
    found = driver.coordinator.describe(ID)
    assert (found.state, found.producer) == (TransactionState.PREPARE_ABORT, Producer(7, 1))
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.end(first))
    refused(TransactionError.CONCURRENT_TRANSACTIONS, driver.init)
    driver.complete()
    assert driver.init() == Producer(7, 2)


def test_init_with_expected_epoch_goes_on_and_may_be_repeated(driver: Driver) -> None:
    first = driver.init()
    second = driver.init(first)
    assert second == Producer(7, 1)
    assert driver.init(first) == second  # the answer was lost
    assert driver.init(second) == Producer(7, 2)
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.init(first))
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.init(OTHER))


def test_init_by_another_producer_fences_one_that_goes_on(driver: Driver) -> None:
    first = driver.init()
    driver.init()
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.init(first))


def test_init_exhausted_epochs_give_a_new_producer_id(driver: Driver) -> None:
    last = Producer(7, MAX_EPOCH - 1)
    driver.coordinator.load([Transaction(ID, last, 500, TransactionState.COMPLETE_COMMIT, 0)])
    driver.next_id = 8
    renewed = driver.init(last)
    assert renewed == Producer(8, 0)
    assert driver.init(last) == renewed  # the answer was lost
    assert driver.init(renewed) == Producer(8, 1)


def test_init_open_transaction_with_the_last_epoch_can_still_be_fenced(driver: Driver) -> None:
    last = Producer(7, MAX_EPOCH - 1)
    driver.coordinator.load([Transaction(ID, last, 500, TransactionState.ONGOING, 0, 0)])
    refused(TransactionError.CONCURRENT_TRANSACTIONS, driver.init)
    assert driver.coordinator.describe(ID).producer == Producer(7, MAX_EPOCH)
    driver.complete()
    driver.next_id = 8
    assert driver.init() == Producer(8, 0)


def test_add_begins_a_transaction_and_grows_it(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, T0)
    driver.now_ms = 200
    driver.add(producer, T1, groups=("g",))
    found = driver.coordinator.describe(ID)
    assert (found.state, found.started_ms, found.updated_ms) == (TransactionState.ONGOING, 100, 200)
    assert (found.partitions, found.groups) == ({T0, T1}, {"g"})
    assert driver.coordinator.add(300, ID, producer, [T0], ["g"]) is None


def test_pending_decision_refuses_everything_else(driver: Driver) -> None:
    producer = driver.init()
    pending = driver.coordinator.add(0, ID, producer, [T0])
    assert pending is not None
    for ask in (
        lambda: driver.add(producer, T1),
        lambda: driver.end(producer),
        lambda: driver.stage(producer),
        driver.init,
    ):
        refused(TransactionError.CONCURRENT_TRANSACTIONS, ask)
    driver.coordinator.abandon(pending)
    assert driver.state is TransactionState.EMPTY
    driver.add(producer, T1)
    assert driver.coordinator.describe(ID).partitions == {T1}


def test_pending_new_id_abandoned_is_forgotten(driver: Driver) -> None:
    pending = driver.coordinator.init_producer(0, ID, 500, None, 7)
    refused(
        TransactionError.CONCURRENT_TRANSACTIONS,
        lambda: driver.coordinator.init_producer(0, ID, 500, None, 8),
    )
    driver.coordinator.abandon(pending)
    assert driver.coordinator.get(ID) is None
    assert driver.init() == Producer(7, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_end_decides_and_may_be_repeated(driver: Driver, *, commit: bool) -> None:
    producer = driver.init()
    driver.add(producer, T0)
    after = driver.end(producer, commit=commit)
    assert after is not None
    assert after.partitions == {T0}
    refused(TransactionError.CONCURRENT_TRANSACTIONS, lambda: driver.end(producer, commit=commit))
    refused(TransactionError.INVALID_TXN_STATE, lambda: driver.end(producer, commit=not commit))
    refused(TransactionError.CONCURRENT_TRANSACTIONS, lambda: driver.add(producer, T0))
    driver.complete()
    assert driver.end(producer, commit=commit) is None
    refused(TransactionError.INVALID_TXN_STATE, lambda: driver.end(producer, commit=not commit))
    driver.add(producer, T1)
    assert driver.coordinator.describe(ID).partitions == {T1}


def test_end_without_transaction_refused(driver: Driver) -> None:
    producer = driver.init()
    refused(TransactionError.INVALID_TXN_STATE, lambda: driver.end(producer))
    refused(TransactionError.INVALID_PRODUCER_ID_MAPPING, lambda: driver.end(OTHER))


def test_end_left_in_a_connection_given_up_does_not_touch_the_next(driver: Driver) -> None:
    """The client closed connection 1 with its EndTxn in a buffer, and said it again over connection 2:

    1: ....EndTxn(1).........................................> arrives last
    2: ............EndTxn(1) ok.. AddPartitions(2).. Produce(2)
    """
    producer = driver.init()
    driver.add(producer, T0)
    driver.end(producer, origin=Origin(2))
    driver.complete()
    driver.add(producer, T1)
    late = Origin(1, has_left=True)
    refused(TransactionError.CONCURRENT_TRANSACTIONS, lambda: driver.end(producer, origin=late))
    assert driver.state is TransactionState.ONGOING
    assert driver.end(producer, commit=False, origin=Origin(3, has_left=True)) is not None


def test_stage_offsets_left_in_a_connection_given_up_do_not_replace_newer_ones(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, groups=("g",))
    driver.stage(producer, origin=Origin(2))
    late = Origin(1, has_left=True)
    refused(TransactionError.CONCURRENT_TRANSACTIONS, lambda: driver.stage(producer, origin=late))


def test_requests_over_an_older_connection_that_is_held_are_decided_by_the_state(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, groups=("g",))
    driver.stage(producer, origin=Origin(2))
    driver.stage(producer, origin=Origin(1))
    assert driver.end(producer, origin=Origin(1)) is not None
    driver.complete()
    driver.add(producer, T1)
    assert driver.end(producer, origin=Origin(1)) is not None


def test_stage_offsets_become_unstable_until_the_transaction_is_complete(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, groups=("g",))
    assert ("in", 0) not in driver.coordinator.unstable_offsets("g")
    driver.stage(producer)
    assert set(driver.coordinator.unstable_offsets("g")) == {("in", 0)}
    after = driver.end(producer)
    assert after is not None
    assert after.offsets == {"g": OFFSETS}
    assert set(driver.coordinator.unstable_offsets("g")) == {("in", 0)}
    driver.complete()
    assert not driver.coordinator.unstable_offsets("g")
    assert driver.coordinator.describe(ID).offsets == {}


def test_stage_offsets_aborted_are_forgotten(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, groups=("g",))
    driver.stage(producer)
    after = driver.end(producer, commit=False)
    assert after is not None
    assert after.offsets == {}
    assert not driver.coordinator.unstable_offsets("g")


def test_drop_offsets_takes_them_out_of_an_open_transaction_only(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, groups=("g", "h"))
    driver.stage(producer, "g")
    driver.stage(producer, "h")
    drop = driver.coordinator.drop_offsets
    assert drop("nobody", "g") is None
    assert drop(ID, "nobody") is None
    assert drop(ID, "g", [("elsewhere", 0)]) is None
    assert driver.coordinator.staging("g") == [ID]
    driver.apply(drop(ID, "g", [("in", 0)]))
    assert driver.coordinator.staging("g") == []
    assert not driver.coordinator.unstable_offsets("g")
    after = driver.end(producer)
    assert after is not None
    assert after.offsets == {"h": OFFSETS}
    assert drop(ID, "h") is None  # decided: they are being applied


def test_stage_offsets_of_a_group_that_was_not_added_refused(driver: Driver) -> None:
    producer = driver.init()
    refused(TransactionError.TRANSACTION_ABORTABLE, lambda: driver.stage(producer))
    driver.add(producer, T0)
    refused(TransactionError.TRANSACTION_ABORTABLE, lambda: driver.stage(producer))


def test_check_write_only_within_the_transaction(driver: Driver) -> None:
    producer = driver.init()
    check = driver.coordinator.check_write
    refused(TransactionError.TRANSACTION_ABORTABLE, lambda: check(ID, producer, T0))
    driver.add(producer, T0)
    check(ID, producer, T0)
    refused(TransactionError.TRANSACTION_ABORTABLE, lambda: check(ID, producer, T1))
    refused(TransactionError.PRODUCER_FENCED, lambda: check(ID, Producer(7, 1), T0))
    refused(TransactionError.INVALID_PRODUCER_ID_MAPPING, lambda: check("other", producer, T0))
    driver.end(producer)
    refused(TransactionError.CONCURRENT_TRANSACTIONS, lambda: check(ID, producer, T0))
    driver.complete()
    refused(TransactionError.TRANSACTION_ABORTABLE, lambda: check(ID, producer, T0))


def test_time_out_aborts_and_fences_only_what_is_too_old(driver: Driver) -> None:
    producer = driver.init()
    driver.add(producer, T0)
    assert driver.coordinator.time_out(600) == []
    (transition,) = driver.coordinator.time_out(601)
    driver.apply(transition)
    found = driver.coordinator.describe(ID)
    assert (found.state, found.producer) == (TransactionState.PREPARE_ABORT, Producer(7, 1))
    assert driver.coordinator.time_out(601) == []
    refused(TransactionError.PRODUCER_FENCED, lambda: driver.end(producer))


def test_expire_forgets_idle_ids_but_no_transactions(driver: Driver) -> None:
    producer = driver.init()
    assert driver.coordinator.expire(5099) == []
    driver.add(producer, T0)
    assert driver.coordinator.expire(10**9) == []
    driver.end(producer)
    assert driver.coordinator.expire(10**9) == []
    driver.complete()
    (transition,) = driver.coordinator.expire(10**9)
    assert transition.after is None
    driver.apply(transition)
    refused(TransactionError.TRANSACTIONAL_ID_NOT_FOUND, lambda: driver.coordinator.describe(ID))
    assert driver.init() == Producer(8, 0)


def test_load_tells_what_is_decided_but_not_complete(driver: Driver) -> None:
    stored = [
        Transaction(
            name, Producer(number, 0), 500, state, 0, 0, offsets={"g": OFFSETS} if number == 2 else {}
        )
        for number, (name, state) in enumerate((state.name, state) for state in TransactionState)
    ]
    prepared = driver.coordinator.load(stored)
    assert {each.state for each in prepared} == {
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    }
    assert set(driver.coordinator.unstable_offsets("g")) == {("in", 0)}
    driver.coordinator.unload(state.name for state in TransactionState)
    assert driver.coordinator.transactions() == []
    assert not driver.coordinator.unstable_offsets("g")


def test_unload_while_pending_ignores_what_was_stored(driver: Driver) -> None:
    producer = driver.init()
    pending = driver.coordinator.add(0, ID, producer, [T0])
    assert pending is not None
    driver.coordinator.unload([ID])
    driver.coordinator.apply(pending)
    assert driver.coordinator.get(ID) is None


def test_empty_transactional_id_refused(driver: Driver) -> None:
    refused(TransactionError.INVALID_REQUEST, lambda: driver.coordinator.init_producer(0, "", 500))
    refused(TransactionError.INVALID_REQUEST, lambda: driver.coordinator.add(0, "", OTHER, [T0]))
    refused(TransactionError.INVALID_REQUEST, lambda: driver.coordinator.describe(""))
