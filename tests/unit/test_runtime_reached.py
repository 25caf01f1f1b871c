"""A job's fingerprint: of its function's text, and of what that reaches of the project's own code."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater_streams.runtime.loader import load_jobs
from headwater_streams.runtime.reached import reached, tree_of

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


def fingerprints(folder: Path, module: str = MODULE, neighbour: str = NEIGHBOUR) -> dict[str, str]:
    (folder / "prices.py").write_text(module)
    (folder / "neighbour_of_prices.py").write_text(neighbour)
    program = (
        "import sys; from headwater_streams.runtime.loader import load_jobs; "
        "print(*[f'{job.name}={job.fingerprint}' for job in load_jobs([sys.argv[1]])])"
    )
    told = subprocess.run(
        [sys.executable, "-B", "-c", program, str(folder / "prices.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(one.split("=") for one in told.stdout.split())


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fingerprints(tmp_path_factory.mktemp("before"))


BOTH, ONE, LINES = {"orders", "priced"}, {"orders"}, {"priced"}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
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
    ],
)
def test_fingerprint_changes_with_what_the_function_reaches(
    tmp_path: Path, before: dict[str, str], old: str, new: str, changed: set[str]
) -> None:
    assert (MODULE + NEIGHBOUR).count(old) == 1
    after = fingerprints(tmp_path, MODULE.replace(old, new), NEIGHBOUR.replace(old, new))
    assert {name for name in before if before[name] != after[name]} == changed


def test_fingerprint_is_the_same_in_each_process_whatever_the_function_does_not_reach(
    tmp_path: Path, before: dict[str, str]
) -> None:
    other = MODULE.replace("UNUSED = 1", "UNUSED = 2").replace("does not matter", "is of no interest")
    assert fingerprints(tmp_path, other) == before


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
