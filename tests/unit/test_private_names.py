"""Canaries: what the library uses of Spark, Delta, PySpark and py4j without a promise is there, name by name."""

import ast
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyspark
import pytest

import headwater_streams.spark
from class_files import ClassFiles
from headwater.config import SparkSettings
from headwater.stack.jars import jar_paths
from headwater.stack.session import session_conf
from headwater_streams.spark.private_names import (
    OF_PYTHON,
    OF_THE_JVM,
    TEXTS,
    PrivateName,
    PrivatePython,
    PrivateText,
)

DOOR = Path(headwater_streams.spark.__file__).parent
TABLE = DOOR / "private_names.py"
_PUBLIC = {
    "org.apache.spark.sql.SaveMode",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.streaming.OutputMode",
    "org.apache.spark.sql.types.DataTypes",
    "org.apache.spark.sql.types.Metadata",
}
_SETTINGS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.SparkContext",
    "org.apache.spark.internal.config.Python$",
    "org.apache.spark.internal.config.UI$",
    "org.apache.spark.internal.config.package$",
    "org.apache.spark.sql.internal.SQLConf$",
    "org.apache.spark.sql.internal.SqlApiConfHelper$",
    "org.apache.spark.sql.internal.StaticSQLConf$",
    "org.apache.spark.sql.delta.sources.DeltaSQLConfBase",
    "org.apache.parquet.hadoop.ParquetInputFormat",
    "org.apache.parquet.hadoop.ParquetOutputFormat",
)
"""Classes that define settings."""
_NAMED_BY_US = {"spark.sql.catalog.spark_catalog"}
"""A name of a catalog is a part of its setting."""
_RULES = ("plan/*.py", "spark/*.py", "operators/windows/count.py")
_KIND = re.compile(r"[A-Z][a-z]+\w*")
_OURS = {
    "CountWindow", "ErrorBound", "InputFacts", "JobFunction", "Kind", "PlanNode", "PlanShape", "PythonUtils",
    "Relation", "RunFacts",
}  # fmt: skip
"""Texts like these that are no kind of a node, or of one that is none any more."""
_OF_SPARK = re.compile(
    r"(?:org\.apache|io\.delta)\.[\w.]*\.[A-Z]\w*(?:\$\w*)?|org\.apache\.spark\.sql\.functions"
)


@cache
def class_files() -> ClassFiles:
    of_pyspark = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return ClassFiles([*sorted(of_pyspark), *jar_paths(os.environ)])


@pytest.mark.parametrize("name", OF_THE_JVM, ids=lambda name: name.owner.rpartition(".")[2])
def test_private_name_of_the_jvm_is_there(name: PrivateName) -> None:
    assert name.owner in class_files(), f"{name.use}; without it: {name.plainly}"
    gone = set(name.members) - class_files().members(name.owner)
    assert not gone, f"{name.owner}: {sorted(gone)}; {name.use}; without it: {name.plainly}"


@pytest.mark.parametrize("name", OF_PYTHON, ids=lambda name: name.owner)
def test_private_name_of_python_is_there(name: PrivatePython) -> None:
    gone = [member for member in name.members if not _has(name.owner, member)]
    assert not gone, f"{name.owner}: {gone}; {name.use}; without it: {name.plainly}"


def _has(owner: str, member: str) -> bool:
    """Whether a module or a class has a member; what its constructor gives an instance stands in its source."""
    try:
        found = importlib.import_module(owner)
    except ModuleNotFoundError:
        module, _, name = owner.rpartition(".")
        found = getattr(importlib.import_module(module), name)
    if hasattr(found, member):
        return True
    classes = inspect.getmro(found) if inspect.isclass(found) else ()
    return any(
        f"self.{member}" in inspect.getsource(each) for each in classes if each.__module__ != "builtins"
    )


@pytest.mark.parametrize("name", TEXTS, ids=lambda name: name.text)
def test_private_text_is_known(name: PrivateText) -> None:
    assert name.text in class_files().texts(name.owner), name.use
    assert any(name.text in path.read_text() for path in DOOR.parent.rglob("*.py") if path != TABLE)


def test_settings_are_known_and_name_classes_that_are_there() -> None:
    """Spark says nothing of a setting that it does not know."""
    conf = session_conf(Path("/home"), SparkSettings(), app_name="a", cores=1, jars=[])
    settings = {_as_spark_has_it(key) for key in set(conf) | _settings_of_streams()} - _NAMED_BY_US
    known = set[str]().union(*map(class_files().texts, _SETTINGS))
    assert settings - known == set()
    classes = {value for value in conf.values() if re.fullmatch(r"(?:io|org)\.[\w.]+\.[A-Z]\w+", value)}
    assert len(classes) >= 4
    assert {name for name in classes if name not in class_files()} == set()


def _as_spark_has_it(setting: str) -> str:
    """Hadoop's settings and Delta's are told by a prefix, and those of one column by its name."""
    return re.sub(r"^spark\.(?:hadoop|databricks\.delta)\.", "", setting).partition("#")[0]


def _settings_of_streams() -> set[str]:
    texts = {text for path in DOOR.parent.rglob("*.py") if path != TABLE for text in _texts(path)}
    private = {name.text for name in TEXTS}
    return {text for text in texts if re.fullmatch(r"spark(?:\.[a-z]\w*){2,}", text)} - private


def test_rules_name_kinds_of_nodes_that_are_there() -> None:
    """A rule about a node of another name would hold for every plan."""
    paths = (path for rules in _RULES for path in DOOR.parent.glob(rules) if path != TABLE)
    kinds = {text for path in paths for text in _texts(path) if _KIND.fullmatch(text)} - _OURS
    assert len(kinds) > 60
    assert kinds - class_files().simple_names("org.apache.spark.sql") == set()


def test_each_class_that_the_door_names_is_in_the_table() -> None:
    owners = {name.owner.removesuffix("$") for name in OF_THE_JVM} | _PUBLIC
    named = {text for path in DOOR.glob("*.py") for text in _texts(path) if path != TABLE}
    assert {text for text in named if _OF_SPARK.fullmatch(text)} - owners == set()


def test_each_member_in_the_table_is_used() -> None:
    source = "".join(path.read_text() for path in DOOR.glob("*.py") if path != TABLE)
    members = [(each.owner, member) for each in (*OF_THE_JVM, *OF_PYTHON) for member in each.members]
    names = [(owner, member.partition("/")[0]) for owner, member in members]
    assert [each for each in names if each[1] != "new" and not re.search(rf"\b{each[1]}\b", source)] == []


def _texts(path: Path) -> Iterator[str]:
    """The texts of a module, those made of its constants whole."""
    tree = ast.parse(path.read_text())
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(_part(part, constants) for part in node.values)


def _part(part: ast.expr, constants: dict[str, object]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return str(constants.get(part.value.id, "?")) if isinstance(part.value, ast.Name) else "?"
