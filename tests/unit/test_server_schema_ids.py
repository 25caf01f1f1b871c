"""Which ids a subject has, as the broker knows it of a registry, without one; and a batch that is judged by them."""

import threading

import pytest

from headwater_broker.log import InvalidBatchError, SchemasUnavailableError
from headwater_broker.log.batch import HEADER
from headwater_broker.log.schema_ids import check_schema_ids
from headwater_broker.server.schema_ids import RegistryIds
from headwater_broker.testing.batches import build_batch


class Registry:
    """A registry that answers when it is told to."""

    def __init__(self) -> None:
        self.subjects: dict[int, list[str]] = {}
        self.is_away = False
        self.asked: list[int] = []
        self.may_answer = threading.Semaphore(0)
        self.now_s = 100.0
        self.ids = RegistryIds("http://registry", ask=self._ask, now_s=lambda: self.now_s)

    def _ask(self, number: int) -> list[str]:
        self.may_answer.acquire()
        self.asked.append(number)
        if self.is_away:
            raise OSError("refused")
        return self.subjects.get(number, [])

    def answer(self) -> None:
        """Lets it answer the question that was asked last, and waits until the answer is known."""
        self.may_answer.release()
        self.ids._beside.submit(lambda: None).result()


def test_an_id_is_asked_for_once_and_beside() -> None:
    registry = Registry()
    registry.subjects[7] = ["a-value", "b-value"]
    assert registry.ids.has("a-value", 7) is None
    assert registry.ids.has("a-value", 7) is None
    registry.answer()
    assert registry.ids.has("a-value", 7) is True
    assert registry.ids.has("b-value", 7) is True
    assert registry.ids.has("c-value", 7) is False
    assert registry.asked == [7]


def test_a_lack_is_believed_for_two_seconds() -> None:
    registry = Registry()
    assert registry.ids.has("a-value", 8) is None
    registry.answer()
    assert registry.ids.has("a-value", 8) is False
    registry.subjects[8] = ["a-value"]
    registry.now_s += 2
    assert registry.ids.has("a-value", 8) is None
    registry.answer()
    assert registry.ids.has("a-value", 8) is True


def test_a_registry_that_is_away_is_asked_again_after_a_pause() -> None:
    registry = Registry()
    registry.is_away = True
    assert registry.ids.has("a-value", 9) is None
    registry.answer()
    assert registry.ids.has("a-value", 9) is None
    assert registry.asked == [9]
    registry.is_away, registry.subjects[9] = False, ["a-value"]
    registry.now_s += 0.5
    assert registry.ids.has("a-value", 9) is None
    registry.answer()
    assert registry.ids.has("a-value", 9) is True


class Known:
    """Ids that are known, as `{(subject, id): whether it has it}`."""

    def __init__(self, known: dict[tuple[str, int], bool]) -> None:
        self._known = known

    def has(self, subject: str, number: int) -> bool | None:
        return self._known.get((subject, number))


def judge(values: list[bytes | None], known: dict[tuple[str, int], bool]) -> None:
    records = memoryview(build_batch(values))
    check_schema_ids(records, HEADER.unpack_from(records), (None, "t-value"), Known(known))


def test_a_batch_is_judged_by_the_ids_of_its_values() -> None:
    judge([b"\0\0\0\0\7x", None, b"\0\0\0\0\7"], {("t-value", 7): True})
    with pytest.raises(InvalidBatchError, match="record 1: subject t-value has no schema of id 8"):
        judge([b"\0\0\0\0\7x", b"\0\0\0\0\x08x"], {("t-value", 7): True, ("t-value", 8): False})
    with pytest.raises(InvalidBatchError, match="does not begin with the id"):
        judge([b"{}"], {})
    with pytest.raises(SchemasUnavailableError, match="not said yet whether t-value has a schema of id 9"):
        judge([b"\0\0\0\0\x09"], {})
