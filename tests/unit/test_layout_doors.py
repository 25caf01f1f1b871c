"""Streams has one door to the JVM, `spark`, and one door to files, `storage`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import headwater_streams

ROOT = Path(headwater_streams.__file__).parent
_OF_FILES = {"fcntl", "filecmp", "glob", "io", "mmap", "os", "shutil", "tempfile"}
_TOUCHING = {
    "exists", "glob", "hardlink_to", "is_dir", "is_file", "iterdir", "mkdir", "open", "read_bytes", "read_text",
    "rename", "rglob", "rmdir", "samefile", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
_OF_THE_JVM = {"_gateway", "_jc", "_jdf", "_jreader", "_jsc", "_jsparkSession", "_jsq", "_jvm", "_jwrite"}
_OTHER_USES = {"quality/validation.py", "spark/python_daemon.py"}
"""Import `os` for its environment, and `io` for bytes in memory."""


def _modules(but: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if name.parts[0] != but:
            yield str(name), ast.parse(path.read_text())


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def _is_private_of_spark(node: ast.AST) -> bool:
    """`frame._jdf`: how PySpark calls what it has of the JVM."""
    return isinstance(node, ast.Attribute) and node.attr in _OF_THE_JVM


def test_only_spark_names_members_of_the_jvm() -> None:
    found = [
        f"{name}:{node.lineno} {node.attr}"
        for name, tree in _modules("spark")
        for node in ast.walk(tree)
        if _is_private_of_spark(node) and isinstance(node, ast.Attribute)
    ]
    assert found == []
    assert [name for name, tree in _modules("spark") if "py4j" in _imports(tree)] == []


def test_only_storage_touches_files() -> None:
    found = [
        f"{name}:{node.lineno} {node.func.attr}"
        for name, tree in _modules("storage")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TOUCHING
        # `F.exists(...)` is about arrays.
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "F")
    ]
    assert found == []
    imported = {name for name, tree in _modules("storage") if _OF_FILES & set(_imports(tree))}
    assert imported == _OTHER_USES
