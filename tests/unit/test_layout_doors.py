"""Streams has one door to the JVM, `spark`, which the platform uses, too, and one door to files, `storage`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import headwater
import headwater_streams

STREAMS = Path(headwater_streams.__file__).parent
PLATFORM = Path(headwater.__file__).parent
_OF_FILES = {"fcntl", "filecmp", "glob", "io", "mmap", "os", "shutil", "tempfile"}
_TOUCHING = {
    "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir", "open",
    "read_bytes", "read_text", "readlink", "rename", "rglob", "rmdir", "samefile", "stat", "symlink_to", "touch",
    "unlink", "write_bytes", "write_text",
}  # fmt: skip
_OTHER_USES = {"quality/validation.py", "sources/registered.py", "spark/python_daemon.py"}
"""Import `os` for its environment, and `io` for bytes in memory."""
_OF_THE_JVM = {"_gateway", "_jc", "_jdf", "_jreader", "_jsc", "_jsparkSession", "_jsq", "_jvm", "_jwrite"}
_PRIVATE = (
    "headwater_streams.spark.expressions",
    "headwater_streams.spark.gateway",
    "py4j",
    "pyspark.core",
    "pyspark.daemon",
    "pyspark.java_gateway",
    "pyspark.serializers",
    "pyspark.sql.classic",
    "pyspark.sql.pandas",
    "pyspark.util",
    "pyspark.worker",
)
"""Modules that give what is of the JVM, or what PySpark promises nobody."""


def _modules(root: Path, but: str = "") -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] != but:
            yield str(name), ast.parse(path.read_text())


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _has_private(tree: ast.Module) -> Iterator[str]:
    """What a module names of the JVM: `frame._jdf`, as PySpark calls what it has of it, and modules about it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _OF_THE_JVM:
            yield f"{node.lineno} {node.attr}"
        elif isinstance(node, ast.Constant) and node.value in _OF_THE_JVM:
            yield f"{node.lineno} {node.value!r}"
    for name in _imports(tree):
        if any(f"{name}.".startswith(f"{private}.") for private in _PRIVATE):
            yield name


def _touched(tree: ast.Module) -> Iterator[str]:
    """What a module does with files by itself."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"{node.lineno} open"
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in _TOUCHING
            and not _is_of_columns(node.func)
        ):
            yield f"{node.lineno} {node.func.attr}"


def _is_of_columns(function: ast.Attribute) -> bool:
    """`F.exists(...)` is about arrays."""
    return isinstance(function.value, ast.Name) and function.value.id == "F"


def test_only_spark_names_members_of_the_jvm() -> None:
    modules = [*_modules(STREAMS, "spark"), *_modules(PLATFORM)]
    assert [(name, found) for name, tree in modules for found in _has_private(tree)] == []


def test_only_storage_touches_files() -> None:
    modules = list(_modules(STREAMS, "storage"))
    assert [(name, found) for name, tree in modules for found in _touched(tree)] == []
    first = {name: {each.partition(".")[0] for each in _imports(tree)} for name, tree in modules}
    assert {name for name, found in first.items() if _OF_FILES & found} == _OTHER_USES
