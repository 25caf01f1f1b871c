"""What Java's classes have, read from their files in jars, without a JVM (Java Virtual Machine Specification, 4)."""

import re
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

_UTF8, _CLASS_LIKE, _WIDE = 1, {7, 8, 16, 19, 20}, {5, 6}
_PARAMETER = re.compile(r"\[*(?:[BCDFIJSZ]|L[^;]*;)")


class ClassFiles:
    """The classes of some jars; a class that several have is that of the first."""

    def __init__(self, jars: Iterable[Path]) -> None:
        self._jars: dict[str, zipfile.ZipFile] = {}
        for path in jars:
            jar = zipfile.ZipFile(path)
            for name in jar.namelist():
                if name.endswith(".class"):
                    self._jars.setdefault(name.removesuffix(".class").replace("/", "."), jar)

    def __contains__(self, name: str) -> bool:
        return name in self._jars

    def texts(self, name: str) -> set[str]:
        """The texts in a class: those of its code, and the names of everything that it refers to."""
        return set(_constants(self._bytes(name))[0].values())

    def simple_names(self, package: str) -> set[str]:
        """The last names of the classes in a package and those below it, inner ones too."""
        inside = (name for name in self._jars if name.startswith(f"{package}."))
        return {re.split(r"[.$]", name.rstrip("$"))[-1] for name in inside}

    def members(self, name: str) -> set[str]:
        """What a class has: methods as `name/arguments`, constructors as `new/arguments`, fields by their names.

        Inherited ones are among them, as far as the jars have the classes that it inherits from.
        """
        members, waiting, seen = set[str](), [name], set[str]()
        while waiting:
            one = waiting.pop()
            if one in seen or one not in self._jars:
                continue
            seen.add(one)
            above, own = _read(self._bytes(one))
            members |= {each for each in own if one == name or not each.startswith("new/")}
            waiting += above
        return members

    def _bytes(self, name: str) -> bytes:
        return self._jars[name].read(f"{name.replace('.', '/')}.class")


def _read(data: bytes) -> tuple[list[str], set[str]]:
    """What a class inherits from, and what it has itself."""
    texts, places, at = _constants(data)
    _, _, above, interfaces = struct.unpack_from(">HHHH", data, at)
    numbers = [above, *struct.unpack_from(f">{interfaces}H", data, at + 8)]
    at += 8 + 2 * interfaces
    members = set()
    for kind in ("field", "method"):
        (count,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(count):
            _, name, descriptor, attributes = struct.unpack_from(">HHHH", data, at)
            members.add(texts[name] if kind == "field" else _method(texts[name], texts[descriptor]))
            at += 8
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]
    return [texts[places[number]].replace("/", ".") for number in numbers if number], members


def _constants(data: bytes) -> tuple[dict[int, str], dict[int, int], int]:
    """Texts by their numbers, what others refer to, and where the constants end."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts, places, at, number = {}, {}, 10, 1
    while number < count:
        tag, (size,) = data[at], struct.unpack_from(">H", data, at + 1)
        if tag == _UTF8:
            texts[number] = data[at + 3 : at + 3 + size].decode("utf-8", "replace")
            at += 3 + size
        elif tag in _CLASS_LIKE:
            places[number] = size
            at += 3
        elif tag in _WIDE:  # they take two numbers
            at += 9
            number += 1
        else:
            at += 4 if tag == 15 else 5
        number += 1
    return texts, places, at


def _method(name: str, descriptor: str) -> str:
    arguments = len(_PARAMETER.findall(descriptor[1 : descriptor.index(")")]))
    return f"{'new' if name == '<init>' else name}/{arguments}"
