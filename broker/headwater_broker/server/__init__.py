"""The server: sockets, dispatch and the loop around the log, the groups and the shared state.

`transport` moves bytes, `core` turns frames into answers and knows no socket, `produce` and `fetch` are the hot
path, `apis` everything else, `guards` who may ask for it; `listeners`, `tls` and `sasl` are how clients come in,
`security` what is known of them, `quotas` what they may use; `state` keeps the view of the `cluster` current;
`broker` puts the parts together and `process` runs them as `python -m headwater_broker`.
"""

from headwater_broker.server.broker import Broker, BrokerOptions
from headwater_broker.server.errors import CoordinatorError, PortInUseError, ServerError, UsageError
from headwater_broker.server.listeners import ListenerSpec, parse_listeners
from headwater_broker.server.settings import BrokerSettings, parse_settings

__all__ = [
    "Broker",
    "BrokerOptions",
    "BrokerSettings",
    "CoordinatorError",
    "ListenerSpec",
    "PortInUseError",
    "ServerError",
    "UsageError",
    "parse_listeners",
    "parse_settings",
]
