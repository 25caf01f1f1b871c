"""Bytes that no client sends, made up by the protocol's own structure: the broker serves the others as if nothing were.

`make fuzz-broker` (`HEADWATER_FUZZ_S`) is the long form, which adds to the corpus what led to something new;
`HEADWATER_SEED` makes the same sessions again, as far as the broker's answers are the same.

What must hold all the time: the broker lives and its log has no traceback and no forged line; each answer is one to
what was asked, by the schema of its version; a request that cannot be answered ends its own connection alone; memory
and descriptors stay bounded; a client beside it has its answers in time, and its records as they were acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from amount import amount, drawn_seed
from wire_fuzz.campaign import Campaign
from wire_fuzz.corpus import Corpus
from wire_fuzz.target import Target

SECONDS = "HEADWATER_FUZZ_S"
"""How long both coordinators together are fuzzed."""


@pytest.fixture(params=["memory", "zookeeper"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    shared_state = ["--coordinator", "memory"]
    if request.param == "zookeeper":
        shared_state = [
            "--zookeeper",
            f"{request.getfixturevalue('zookeeper').hosts}/{tmp_path.name}-{os.getpid()}",
        ]
    started = Target(tmp_path, shared_state)
    try:
        started.start()
        yield started
    finally:
        started.process.kill()


@pytest.mark.story
@pytest.mark.parametrize("target", ["memory"], indirect=True)
def test_fuzz_sessions_of_the_corpus_harm_nobody(target: Target) -> None:
    campaign = Campaign(target, drawn_seed(), Corpus.stored())
    campaign.run(0)
    assert not campaign.findings, campaign.report()


def test_fuzz_random_sessions_harm_nobody(target: Target) -> None:
    campaign = Campaign(target, drawn_seed(), Corpus.stored())
    campaign.run(amount(SECONDS, small=4, full=30) / 2)
    print(campaign.report())
    if SECONDS in os.environ:
        campaign.corpus.save()
    assert not campaign.findings, campaign.report()
