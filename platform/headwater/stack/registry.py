"""The stack's schema registry process, as its parent sees it."""

import select
import sys
import time
from collections.abc import Callable, Sequence

from headwater.errors import EXIT_DEPENDENCY, EXIT_PORT_IN_USE, UserError
from headwater.stack.ready import ReadyProcess
from headwater.stack.spec import StackSpec

_PASSED_ON = (EXIT_PORT_IN_USE, EXIT_DEPENDENCY)
_POLL_S = 0.2


class RegistryProcess(ReadyProcess):
    """One `headwater registry serve`.

    Args:
        spec: The stack that it belongs to.
        brokers: The addresses of the stack's brokers.
    """

    def __init__(self, spec: StackSpec, brokers: Sequence[str]) -> None:
        super().__init__(
            "the schema registry", spec.data / "registry.log", _PASSED_ON, prefix="the schema registry: "
        )
        self._spec = spec
        self._brokers = ",".join(brokers)
        self._port = spec.registry_port or 0

    def start(self) -> None:
        """Start the process; it is ready once `read_ready` says so.

        Raises:
            UserError: Its log may not be written.
        """
        self.run(
            [
                *(sys.executable, "-P", "-m", "headwater.cli", "registry", "serve"),
                *("--bootstrap", self._brokers),
                *("--host", self._spec.host),
                *("--port", str(self._port)),
            ]
        )

    def read_ready(self) -> bool:
        """See `ReadyProcess`; its port is kept: clients look for it there when it runs again."""
        if is_ready := super().read_ready():
            self.address = self.address.removeprefix("http://")
            self._port = int(self.address.rpartition(":")[2])
        return is_ready

    def await_ready(self, timeout_s: float, interrupted: Callable[[], bool]) -> None:
        """Wait until it answers.

        Raises:
            UserError: It ends, or takes too long.
        """
        deadline = time.monotonic() + timeout_s
        while not self.read_ready() and not interrupted():
            if self.process.poll() is not None:
                raise self.failure()
            if time.monotonic() > deadline:
                raise UserError(
                    f"the schema registry was not ready after {timeout_s:.0f} s: see {self.log}, or raise "
                    "stack.ready_timeout_s"
                )
            select.select([self.stdout_fd], [], [], _POLL_S)
