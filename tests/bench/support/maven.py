"""Jars of the peers that tests and benchmarks compare with: Maven copies them into a cache, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_FETCH_TIMEOUT_S = 240


class NoJarsError(Exception):
    """Jars are not there, and cannot be fetched."""


def cached_jars(
    name: str, variable: str, pom: Path, product: str, properties: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """The folder of a product's jars and of all that they need, fetched once.

    Args:
        name: The folder's, with the product's version.
        variable: Of the environment, which names another folder.
        pom: Its dependencies are what is fetched.
        product: In messages.
        properties: Of the pom.

    Raises:
        NoJarsError: See the class.
    """
    cache = Path(os.environ.get(variable, Path("~/.cache/headwater-tests").expanduser() / name))
    if not cache.is_dir():
        _fetch(cache, pom, product, properties)
    return cache


def _fetch(cache: Path, pom: Path, product: str, properties: Mapping[str, str]) -> None:
    if shutil.which("mvn") is None:
        raise NoJarsError(f"there is no mvn command to fetch {product}'s jars with")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as scratch:
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={scratch}/jars"]
        command += [f"-D{key}={value}" for key, value in properties.items()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            message = f"Maven took more than {_FETCH_TIMEOUT_S} s to fetch {product}'s jars"
            raise NoJarsError(message) from None
        if done.returncode:
            raise NoJarsError(f"Maven could not fetch {product}'s jars: {done.stdout[-500:]}")
        try:
            Path(f"{scratch}/jars").rename(cache)
        except OSError as error:
            if not cache.is_dir():
                raise NoJarsError(f"{cache}: {error}") from error
