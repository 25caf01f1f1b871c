"""A job's fingerprint: of its function's text, and of what that reaches of the project's own code."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.loader import load_jobs
from headwater_streams.plan.reached import reached, tree_of

MODULE = """
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache, partial

import headwater as hw
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import neighbour_of_prices
from neighbour_of_prices import Shop

RATE = Decimal("0.2")
BOTS = {"crawler", "spider", "bot"}
SINCE = {"de": date(2024, 1, 1), "at": [1, 2.5, None]}
AGENT = re.compile("bot/[0-9]+")
UNUSED = 1


@dataclass(frozen=True)
class Tax:
    rate: Decimal

    def of(self, price: Column) -> Column:
        return price * self.rate


TAX = Tax(RATE)


def rounded(price: Column, digits: int = 2) -> Column:
    return F.round(price, digits)


@cache
def net(price: Column) -> Column:
    # A comment does not matter.
    return rounded(price / (1 + RATE))


add = partial(net)
parse = hw.Parser("prices", "price DECIMAL(18, 2)", lambda line, _: F.struct(net(line).alias("price")))
sold = hw.topic("sold", schema="price DECIMAL(18, 2)")
lines = hw.topic("lines", format=parse)


@hw.job(target=hw.delta("silver.orders"))
def orders(sold: DataFrame) -> DataFrame:
    def kept(frame: DataFrame) -> DataFrame:
        return frame.filter(~F.col("agent").isin(BOTS) & F.col("at").isin(SINCE["at"]))

    priced = kept(sold).withColumn("net", add(F.col("price"))).withColumn("tax", TAX.of(F.col("price")))
    return priced.withColumn("shop", F.lit(Shop.NAME)).withColumn("more", neighbour_of_prices.more(F.col("price")))


@hw.job(target=hw.delta("silver.lines"))
def priced(lines: DataFrame) -> DataFrame:
    return lines
"""
NEIGHBOUR = """
from pyspark.sql import Column

MORE = 3


class Shop:
    NAME = "corner"


def more(price: Column) -> Column:
    return price + MORE
"""


PROGRAM = """
import os, sys
from headwater_streams.loader import load_jobs

for folder in sys.argv[1:]:
    child = os.fork()  # modules of one name are loaded once in a process
    if child:
        assert os.waitpid(child, 0)[1] == 0, folder
        continue
    print(*[f"{job.name}={job.fingerprint}" for job in load_jobs([f"{folder}/prices.py"])], flush=True)
    os._exit(0)
"""


def fingerprints(folder: Path, *projects: tuple[str, str]) -> list[dict[str, str]]:
    """By job, of each project: of its `prices.py` and `neighbour_of_prices.py`."""
    for number, (module, neighbour) in enumerate(projects):
        (folder / f"{number}").mkdir()
        (folder / f"{number}" / "prices.py").write_text(module)
        (folder / f"{number}" / "neighbour_of_prices.py").write_text(neighbour)
    folders = [str(folder / f"{number}") for number in range(len(projects))]
    told = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM, *folders], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    return [dict(one.split("=") for one in line.split()) for line in told.stdout.splitlines()]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fingerprints(tmp_path_factory.mktemp("before"), (MODULE, NEIGHBOUR))[0]


BOTH, ONE, LINES = {"orders", "priced"}, {"orders"}, {"priced"}


CHANGES = [
    ('Decimal("0.2")', 'Decimal("0.25")', BOTH),
    ('"spider", ', "", ONE),
    ("date(2024, 1, 1)", "date(2024, 1, 2)", ONE),
    ("price * self.rate", "price * self.rate * 2", ONE),
    ("digits: int = 2", "digits: int = 3", BOTH),
    ("price / (1 + RATE)", "price / RATE", BOTH),
    ("partial(net)", "partial(net, digits=1)", ONE),
    ("MORE = 3", "MORE = 4", ONE),
    ("return price + MORE", "return price - MORE", ONE),
    ('NAME = "corner"', 'NAME = "square"', ONE),
    ("F.struct(net(line)", "F.struct(net(line * 2)", LINES),
]


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Of each change."""
    projects = [(MODULE.replace(old, new), NEIGHBOUR.replace(old, new)) for old, new, _ in CHANGES]
    return fingerprints(tmp_path_factory.mktemp("after"), *projects)


@pytest.mark.parametrize(
    ("number", "old", "changed"), [(number, old, changed) for number, (old, _, changed) in enumerate(CHANGES)]
)
def test_fingerprint_changes_with_what_the_function_reaches(
    before: dict[str, str], after: list[dict[str, str]], number: int, old: str, changed: set[str]
) -> None:
    assert (MODULE + NEIGHBOUR).count(old) == 1
    assert {name for name in before if before[name] != after[number][name]} == changed


def test_fingerprint_is_the_same_in_each_process_whatever_the_function_does_not_reach(
    tmp_path: Path, before: dict[str, str]
) -> None:
    other = MODULE.replace("UNUSED = 1", "UNUSED = 2").replace("does not matter", "is of no interest")
    assert fingerprints(tmp_path, (other, NEIGHBOUR)) == [before]


def test_fingerprint_of_a_function_that_reaches_nothing_is_that_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "import headwater as hw\n"
        "from pyspark.sql import DataFrame, functions as F\n\n"
        "clicks = hw.topic('clicks', schema='n INT')\n\n\n"
        "@hw.job(target=hw.delta('silver.clicks'))\n"
        "def plain(clicks: DataFrame) -> DataFrame:\n"
        "    return clicks.withColumn('m', F.col('n') + 1)\n"
    )
    (job,) = load_jobs([str(tmp_path / "plain.py")])
    assert reached(job.function) == ""
    assert "FunctionDef" in tree_of(job.function)


def test_function_whose_source_nobody_holds_is_told_in_a_sentence() -> None:
    typed: dict[str, object] = {}
    exec("def typed(): return 1", typed)
    with pytest.raises(
        JobDefinitionError, match=r"^the source of typed cannot be read, .* write it into a file"
    ):
        tree_of(typed["typed"])


def test_object_that_does_not_let_itself_be_looked_at_is_told_by_its_type() -> None:
    class Shy:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

        __dict__ = property(lambda _: 1 / 0)  # type: ignore[assignment]

    shy, deep = Shy(), [[]]  # type: ignore[var-annotated]
    deep[0] = deep

    def job() -> tuple[object, object]:
        return shy, deep

    assert "<locals>.Shy" in reached(job)
