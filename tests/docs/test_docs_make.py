"""What the README says to type exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_make_targets_that_the_readme_names_are_there() -> None:
    named = set(re.findall(r"(?:`|^ {4})make ([a-z][a-z-]*)", README, re.MULTILINE))
    targets = {
        name for line in re.findall(r"^([a-z][a-z -]*):", MAKEFILE, re.MULTILINE) for name in line.split()
    }
    assert {"demo", "test", "bench-broker"} <= named
    assert named <= targets


def test_make_targets_beside_tests_say_what_they_do() -> None:
    assert re.findall(r"^(?:setup|demo|bench-\w+):(?!.*##).*$", MAKEFILE, re.MULTILINE) == []


def test_benchmarks_that_are_named_are_there() -> None:
    named = set(re.findall(r"python (tests/bench/\w+\.py)", README)) | set(
        re.findall(r"/python (tests/bench/\w+\.py)", MAKEFILE)
    )
    assert {"tests/bench/broker.py", "tests/bench/beside_kafka.py"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []
