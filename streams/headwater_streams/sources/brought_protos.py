"""Files that `.proto` files import without anybody having to send them: they come with libraries, here as in Java.

A registry is not told of them: `google/protobuf/timestamp.proto`, `google/type/date.proto`, and Confluent's own, as
Kafka Connect's DECIMAL is a message of `confluent/type/decimal.proto`.
"""

from importlib import import_module
from typing import Any

_MODULES = (
    ("google/protobuf/", "google.protobuf."),
    ("google/type/", "google.type."),
    ("google/rpc/", "google.rpc."),
    ("google/api/", "google.api."),
    ("confluent/", "confluent_kafka.schema_registry.confluent."),
)


def brought_files(name: str) -> dict[str, Any]:
    """The descriptor of a file and of those that it imports, each after its own imports.

    Args:
        name: As an import names it.

    Returns:
        A `FileDescriptorProto` by name; none if no library that is installed has the file.
    """
    for folder, package in _MODULES:
        if name.startswith(folder):
            module = package + name.removeprefix(folder).removesuffix(".proto").replace("/", ".") + "_pb2"
            try:
                return _with_imports(import_module(module).DESCRIPTOR)
            except (ModuleNotFoundError, TypeError):  # a name that is none of a module
                return {}
    return {}


def _with_imports(file: Any) -> dict[str, Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    files: dict[str, Any] = {}
    for each in file.dependencies:
        files |= _with_imports(each)
    own = FileDescriptorProto()
    file.CopyToProto(own)
    return {**files, file.name: own}
