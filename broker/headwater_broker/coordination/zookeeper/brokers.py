"""Live brokers, the controller among them, and the numbers that are given out once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from headwater_broker.coordination.errors import BrokerIdInUse, Conflict, CoordinationError, CorruptState
from headwater_broker.coordination.model import PRODUCER_ID_BLOCK_SIZE, BrokerInfo, Controller
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.multi_read import Znode
from headwater_broker.coordination.zookeeper.process import Liveness, ProcessIdentity
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession
from headwater_broker.coordination.zookeeper.transaction import Create, Delete, Operation, SetData
from headwater_broker.shown import MESSAGE_CHARS, shown

_log = logging.getLogger(__name__)

_MAX_PRODUCER_ID = 2**63 - 1
_ATTEMPTS = 20  # of a compare-and-set; each failure means that somebody else got through


class BrokerRegistry:
    """This broker's registration, kept up over sessions, and everybody else's."""

    def __init__(self, session: ZooKeeperSession, wall_ms: Callable[[], int]) -> None:
        self._session = session
        self._wall_ms = wall_ms
        self._process = ProcessIdentity.current()
        self._mine: BrokerInfo | None = None
        self._registered_in: int | None = None

    def register_broker(self, broker: BrokerInfo) -> int:
        """See `Coordinator.register_broker`."""
        epoch = self._register(broker)
        self._mine = broker
        return epoch

    def restore_registration(self) -> bool:
        """Registers this broker again if its session was replaced.

        Returns:
            Whether it is registered now, or was never to be.
        """
        broker = self._mine
        if broker is None or self._registered_in == self._session.session_id:
            return True
        try:
            epoch = self._register(broker)
        except CoordinationError as error:
            _log.warning(
                "broker %d is not registered again yet: %s", broker.broker_id, shown(error, MESSAGE_CHARS)
            )
            return False
        _log.info("broker %d is registered again, its epoch is now %d", broker.broker_id, epoch)
        return True

    def deregister_broker(self) -> None:
        """See `Coordinator.deregister_broker`."""
        broker, self._mine, self._registered_in = self._mine, None, None
        if broker is None:
            return
        for path in (znodes.CONTROLLER, znodes.broker(broker.broker_id)):
            znode = self._session.get(path)
            if znode is not None and znode.ephemeral_owner == self._session.session_id:
                self._session.delete(path, znode.version)

    def brokers(self) -> dict[int, BrokerInfo]:
        """See `Coordinator.brokers`."""
        ids = sorted(int(name) for name in self._session.children(znodes.BROKER_IDS))
        nodes = self._session.get_many(znodes.broker(broker_id) for broker_id in ids)
        return {
            broker_id: znodes.decode_broker(broker_id, nodes[path].data)
            for broker_id in ids
            if (path := znodes.broker(broker_id)) in nodes
        }

    def allocate_broker_id(self, reserved_max: int = 1000) -> int:
        """See `Coordinator.allocate_broker_id`."""
        return reserved_max + self._session.set(znodes.BROKER_SEQUENCE, b"")

    def elect_controller(self, broker_id: int) -> Controller:
        """See `Coordinator.elect_controller`."""
        for _ in range(_ATTEMPTS):
            nodes = self._session.get_many([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
            epoch = nodes.get(znodes.CONTROLLER_EPOCH)
            last = int(epoch.data) if epoch is not None else 0
            standing = nodes.get(znodes.CONTROLLER)
            operations: list[Operation] = []
            if standing is not None:
                holder = int(znodes.decode(znodes.CONTROLLER, standing.data)["brokerid"])
                if holder != broker_id or standing.ephemeral_owner == self._session.session_id:
                    return Controller(holder, last)
                # Ours from before a crash: whoever has our id registered is this broker alone.
                operations.append(Delete(znodes.CONTROLLER, standing.version))
            value = {"version": 1, "brokerid": broker_id, "timestamp": str(self._wall_ms())}
            operations.append(Create(znodes.CONTROLLER, znodes.encode(value), ephemeral=True))
            data = str(last + 1).encode()
            if epoch is None:
                operations.append(Create(znodes.CONTROLLER_EPOCH, data))
            else:
                operations.append(SetData(znodes.CONTROLLER_EPOCH, data, epoch.version))
            try:
                self._session.transact(operations)
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue
            return Controller(broker_id, last + 1)
        raise Conflict("the controller's election was overtaken time and again; try again")

    def controller(self) -> Controller | None:
        """See `Coordinator.controller`."""
        nodes = self._session.get_many([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
        standing = nodes.get(znodes.CONTROLLER)
        epoch = nodes.get(znodes.CONTROLLER_EPOCH)
        if standing is None or epoch is None:
            return None
        value = znodes.decode(znodes.CONTROLLER, standing.data)
        return Controller(int(value["brokerid"]), int(epoch.data))

    def allocate_producer_ids(self) -> tuple[int, int]:
        """See `Coordinator.allocate_producer_ids`."""
        broker_id = self._mine.broker_id if self._mine is not None else -1
        path = znodes.PRODUCER_ID_BLOCK
        for _ in range(_ATTEMPTS):
            last = self._session.get(path)
            start = int(znodes.decode(path, last.data)["block_end"]) + 1 if last is not None else 0
            if start > _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
                raise CorruptState(f"{path} says that all producer ids are used up: {start}")
            block = znodes.encode_producer_id_block(broker_id, start, PRODUCER_ID_BLOCK_SIZE)
            try:
                if last is None:
                    self._session.create(path, block)
                else:
                    self._session.set(path, block, last.version)
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue
            return start, PRODUCER_ID_BLOCK_SIZE
        raise Conflict("producer ids were given to others time and again; try again")

    def _register(self, broker: BrokerInfo) -> int:
        path = znodes.broker(broker.broker_id)
        data = znodes.encode_broker(broker, self._process, self._wall_ms())
        session_id = self._session.session_id
        for _ in range(_ATTEMPTS):
            existing = self._session.get(path)
            operations: list[Operation] = []
            if existing is not None:
                self._refuse_if_live(broker, existing)
                operations.append(Delete(path, existing.version))
            operations.append(Create(path, data, ephemeral=True))
            try:
                self._session.transact(operations)
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue  # it appeared, changed or went meanwhile
            created = self._session.get(path)
            if created is None or created.ephemeral_owner != session_id:
                raise Conflict(
                    f"broker {broker.broker_id}'s session was replaced while it registered; try again"
                )
            self._registered_in = session_id
            return created.czxid
        raise Conflict(f"broker id {broker.broker_id} was registered by others time and again; try again")

    def _refuse_if_live(self, broker: BrokerInfo, existing: Znode) -> None:
        """Passes over a registration that is our own or a dead process's."""
        other = znodes.decode_broker(broker.broker_id, existing.data)
        if other.identity and other.identity == broker.identity:
            return
        process = (znodes.decode(znodes.broker(broker.broker_id), existing.data).get("headwater") or {}).get(
            "process"
        )
        if process and ProcessIdentity.from_json(process).liveness() is Liveness.GONE:
            return
        address = ", ".join(str(endpoint) for endpoint in other.endpoints) or "an unknown address"
        raise BrokerIdInUse(
            f"broker id {broker.broker_id} is registered by another broker at {address}; give this one "
            "another id, or stop that one (if it has just crashed, its registration ends within seconds)"
        )


def wall_clock_ms() -> int:
    """The time of day, as stored with registrations."""
    return time.time_ns() // 1_000_000
