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
from headwater.stack.jars import jar_paths
from headwater_streams.spark.private_names import OF_PYTHON, OF_THE_JVM, PrivateName, PrivatePython

DOOR = Path(headwater_streams.spark.__file__).parent
_PUBLIC = {
    "org.apache.spark.sql.SaveMode",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.streaming.OutputMode",
    "org.apache.spark.sql.types.DataTypes",
    "org.apache.spark.sql.types.Metadata",
}
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


def test_each_class_that_the_door_names_is_in_the_table() -> None:
    owners = {name.owner.removesuffix("$") for name in OF_THE_JVM} | _PUBLIC
    named = {text for path in DOOR.glob("*.py") for text in _texts(path) if path.stem != "private_names"}
    assert {text for text in named if _OF_SPARK.fullmatch(text)} - owners == set()


def test_each_member_in_the_table_is_used() -> None:
    source = "".join(path.read_text() for path in DOOR.glob("*.py") if path.stem != "private_names")
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
