"""What the README and the page of the benchmarks say to type exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "contributing" / "benchmarks.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def make_targets(page: str) -> set[str]:
    """The targets that a page says to make."""
    return set(re.findall(r"(?:`|^\$ )make ([a-z][a-z-]*)", page, re.MULTILINE))


def test_make_targets_that_the_pages_name_are_there() -> None:
    targets = {
        name for line in re.findall(r"^([a-z][a-z -]*):", MAKEFILE, re.MULTILINE) for name in line.split()
    }
    assert {"demo", "test"} <= make_targets(README) <= targets
    benches = {target for target in targets if target.startswith("bench-")}
    assert benches <= make_targets(BENCHMARKS) <= targets


def test_make_targets_beside_tests_say_what_they_do() -> None:
    assert re.findall(r"^(?:setup|demo|bench-\w+):(?!.*##).*$", MAKEFILE, re.MULTILINE) == []


def test_benchmarks_that_are_named_are_there() -> None:
    named = set(re.findall(r"python (tests/bench/\w+\.py)", BENCHMARKS)) | set(
        re.findall(r"/python (tests/bench/\w+\.py)", MAKEFILE)
    )
    assert {"tests/bench/broker.py", "tests/bench/beside_kafka.py"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []
