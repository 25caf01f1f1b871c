"""One broker process, as its parent sees it."""

import sys
from pathlib import Path

from headwater.errors import EXIT_DEPENDENCY, EXIT_PORT_IN_USE, EXIT_USAGE
from headwater.stack.logs import cannot_write
from headwater.stack.ports import format_address
from headwater.stack.ready import ReadyProcess
from headwater.stack.spec import StackSpec

# `headwater up` passes these exit statuses of `python -m headwater_broker` on.
_PASSED_ON = (EXIT_USAGE, EXIT_PORT_IN_USE, EXIT_DEPENDENCY)


class BrokerProcess(ReadyProcess):
    """One `python -m headwater_broker`.

    Args:
        spec: The stack that it belongs to.
        index: Which of the stack's brokers it is, from 0.
        zookeeper: ZooKeeper's address; empty for the memory coordinator.
    """

    def __init__(self, spec: StackSpec, index: int, zookeeper: str) -> None:
        self.id = spec.broker_ids[index]
        self._folder = spec.data / f"broker-{self.id}"
        super().__init__(f"broker {self.id}", self._folder / "broker.log", _PASSED_ON)
        self._spec = spec
        self._port = spec.port_of(index)
        self._zookeeper = zookeeper

    def start(self) -> None:
        """Start the process; it is ready once `read_ready` says so.

        Raises:
            UserError: Its folder may not be written to.
        """
        log_dir: Path = self._folder / "log"
        try:
            log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        state = ["--zookeeper", self._zookeeper] if self._zookeeper else ["--coordinator", "memory"]
        properties = [part for item in self._spec.properties.items() for part in ("--set", "=".join(item))]
        self.run(
            [
                # -P: the current folder is not on the broker's path.
                *(sys.executable, "-P", "-m", "headwater_broker"),
                *("--id", str(self.id)),
                *("--listen", format_address(self._spec.host, self._port)),
                *("--data", str(log_dir)),
                *state,
                *properties,
            ]
        )
