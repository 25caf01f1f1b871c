"""What the handlers of all APIs have in common: the parts of one running broker."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from headwater_broker.coordination import BrokerInfo, Coordinator
from headwater_broker.log import Clock, LogManager
from headwater_broker.server.cluster import ClusterView
from headwater_broker.server.core import Core
from headwater_broker.server.live import LiveSettings
from headwater_broker.server.security import SecurityState
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.state import StateKeeper

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of one broker.

    Attributes:
        live: The broker's settings, which may change.
        me: How this broker registers itself.
        clock: Time.
        core: Dispatch.
        logs: This broker's partitions.
        cluster: What is known of the cluster.
        state: Keeps that knowledge current.
        coordinator: Shared state itself; every call may block, so go through `ask`.
        helpers: Threads for calls that block.
        security: What is known of rules and users.
        places: Properties that the command line has settled, for consoles.
    """

    live: LiveSettings
    me: BrokerInfo
    clock: Clock
    core: Core
    logs: LogManager
    cluster: ClusterView
    state: StateKeeper
    coordinator: Coordinator
    helpers: Executor
    security: SecurityState
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> BrokerSettings:
        """What holds now."""
        return self.live.current

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a call that blocks in a helper thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.helpers, partial(function, *args, **kwargs))
