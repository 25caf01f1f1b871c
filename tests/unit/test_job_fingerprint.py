"""The digest of a job's code: that of the module as it was imported, in whichever thread it is asked for."""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headwater_streams.plan import reached as reached_module
from headwater_streams.plan.job import bind

_HEAD = """
import headwater as hw
clicks = hw.topic("clicks", schema="who STRING")
"""
_JOB = """
@hw.job(name="job{number}", target=hw.delta("silver.t{number}"))
def job{number}(clicks):
    return clicks.filter("{condition}")
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    def loaded(text: str) -> ModuleType:
        path = tmp_path / "fingerprinted.py"
        path.write_text(_HEAD + text)
        spec = importlib.util.spec_from_file_location("fingerprinted", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fingerprinted"] = module
        spec.loader.exec_module(module)
        return module

    yield loaded
    sys.modules.pop("fingerprinted", None)


def test_fingerprint_is_of_the_code_that_was_imported(load: Callable[[str], ModuleType]) -> None:
    module = load(_JOB.format(number=1, condition="who = 'a'"))
    running = bind(module.job1)
    before = running.fingerprint
    path = Path(str(module.__file__))
    path.write_text(path.read_text().replace("'a'", "'somebody else'"))
    assert running.fingerprint == before, "the file was edited while the job runs"
    assert bind(load(_JOB.format(number=1, condition="who = 'somebody else'")).job1).fingerprint != before


def test_fingerprints_are_parsed_by_one_thread_at_a_time(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python 3.11 two threads that parse at once may fail each other with a `SystemError`, as two jobs' did."""
    module = load("".join(_JOB.format(number=number, condition="who = 'a'") for number in range(8)))
    parse, inside, most = reached_module.ast.parse, [0], [0]

    def slow(*given: Any, **named: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        inside[0] -= 1
        return parse(*given, **named)

    monkeypatch.setattr(reached_module.ast, "parse", slow)
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(attrgetter("fingerprint"), [bind(vars(module)[f"job{n}"]) for n in range(8)])
        )
    assert len({*found}) == 8
    assert most == [1]
