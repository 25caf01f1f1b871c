"""The class of each request and response that is advertised, the oldest versions of Produce and Fetch among them."""

from __future__ import annotations

from functools import cache
from typing import Any

from headwater_broker.wire import APIS, Api, apis
from headwater_broker.wire.codec import message_type
from headwater_broker.wire.older import _less

VERSIONS = [(api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]
"""All that the broker advertises."""

_LACKING = {
    (apis.PRODUCE, "request"): (3, {0: {"transactional_id"}}),
    (apis.PRODUCE, "response"): (
        3,
        {0: {"throttle_time", "log_append_time"}, 1: {"log_append_time"}, 2: set()},
    ),
    (apis.FETCH, "request"): (4, {0: {"isolation_level", "max_bytes"}, 3: {"isolation_level"}}),
    (apis.FETCH, "response"): (
        4,
        {
            0: {"throttle_time", "last_stable_offset", "aborted_transactions"},
            1: {"last_stable_offset", "aborted_transactions"},
        },
    ),
}
"""The first version that kio has, and what each version before it lacks (or the next lower one that is named)."""


@cache
def schema(api: Api, version: int, kind: str) -> Any:
    """The class of a message; `kind` is `request` or `response`."""
    first, lacking = _LACKING.get((api.key, kind), (0, {}))
    if version >= first:
        return message_type(api.name, version, kind)
    names = lacking[max(each for each in lacking if each <= version)]
    return _less(message_type(api.name, first, kind), version, frozenset(names), False)
