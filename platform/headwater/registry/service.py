"""One request at a time decides and appends; reading needs no broker."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.registry import errors as codes
from headwater.registry.change import Change
from headwater.registry.errors import RegistryError
from headwater.registry.state import State
from headwater.registry.store import FencedError, TopicStore

T = TypeVar("T")
_TRIES = 5
_NOT_FOUND = 404


class Service:
    """The registry over its topic.

    Args:
        open_store: Opens the topic, given the function that takes its records in.
    """

    def __init__(self, open_store: Callable[[Callable[..., None]], TopicStore]) -> None:
        self.state = State()
        self.store = open_store(self.state.apply)
        self._writing = threading.Lock()

    def read(self, question: Callable[[State], T], *, is_long: bool = False) -> T:
        """The answer to a question about what is known.

        One that finds nothing is asked again when all that stands in the topic now is known: another registry may
        have answered the request before.

        Args:
            question: It changes nothing.
            is_long: It parses or compares schemas, which may take seconds: others read meanwhile.

        Raises:
            RegistryError: What is asked for is not there.
        """
        try:
            return self._answer(question, is_long)
        except RegistryError as error:
            if error.status != _NOT_FOUND:
                raise
        self.store.catch_up()
        return self._answer(question, is_long)

    def change(self, decide: Callable[[State], Change]) -> Any:
        """Carries out what a function decides by all that stands in the topic.

        Raises:
            RegistryError: It is refused, or the topic cannot be written.
        """
        if not self._writing.acquire(timeout=self.store.timeout_s):
            raise RegistryError(codes.STORE_FAILED, "the changes before this one take too long: try again")
        try:
            return self._changed(decide)
        finally:
            self._writing.release()

    def _changed(self, decide: Callable[[State], Change]) -> Any:
        for _ in range(_TRIES):
            self.store.become_writer()
            self.store.catch_up()
            change = self._answer(decide, is_long=True)
            if not change.records:
                return change.answer
            try:
                self.store.append(change.records)
            except FencedError:
                continue
            self.store.catch_up()
            return change.answer
        raise RegistryError(codes.STORE_FAILED, "other registries write to the topic all the time: try again")

    def _answer(self, question: Callable[[State], T], is_long: bool) -> T:
        with self.store.changed:
            if not is_long:
                return question(self.state)
            content = self.state.copy()
        return question(content)
