"""Quotas: whoever names itself by a long name has an account of its own, and no more memory than others."""

from __future__ import annotations

import tracemalloc

from headwater_broker.coordination import ConfigKind
from headwater_broker.security.quotas import DEFAULT, Quota
from headwater_broker.server import parse_settings
from headwater_broker.server.quotas import Quotas
from headwater_broker.testing.clock import FixedClock

LONG = "x" * 32_000


def quotas() -> Quotas:
    made = Quotas(parse_settings({}), FixedClock())
    configs: dict[ConfigKind, dict[str, dict[str, str]]] = {kind: {} for kind in ConfigKind}
    configs[ConfigKind.CLIENT] = {DEFAULT: {"producer_byte_rate": "1000"}}
    made.replace(configs)
    return made


def test_quota_of_a_client_with_a_long_id_is_its_own() -> None:
    made = quotas()
    assert made.record(Quota.PRODUCE, "ANONYMOUS", LONG + "a", 100_000) > 0
    assert made.record(Quota.PRODUCE, "ANONYMOUS", LONG + "a", 0) > 0
    assert made.record(Quota.PRODUCE, "ANONYMOUS", LONG + "b", 1) == 0


def test_quotas_keep_no_long_ids() -> None:
    made = quotas()
    tracemalloc.start()
    try:
        for number in range(500):
            made.record(Quota.PRODUCE, "ANONYMOUS", f"{LONG}{number}", 1)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
