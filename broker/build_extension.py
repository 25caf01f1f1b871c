"""Builds the broker's one extension, `headwater_broker.log._records`, with whatever C compiler there is.

Without a compiler, or without Python's headers, the package is built without it: `headwater_broker.log.walk` then does
the same in Python. hatchling runs it for wheels and for an editable install.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = Path(__file__).parent / "headwater_broker" / "log"
_SOURCE = _FOLDER / "_records.c"
_TARGET = _FOLDER / "_records.abi3.so"
_FLAGS = ("-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-cast-function-type")


class ExtensionHook(BuildHookInterface):
    """What pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and has the wheel say for which machines it is."""
        if compile_extension():
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{_platform()}"
            target = _TARGET.relative_to(self.root)
            build_data["force_include"][str(target)] = "headwater_broker/log/_records.abi3.so"


def compile_extension() -> bool:
    """Whether the extension is built now; what was there before stays until then, for those who run."""
    new_path = _TARGET.with_suffix(".new")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    command = [*compiler, *_FLAGS, f"-I{sysconfig.get_path('include')}", str(_SOURCE), "-o", str(new_path)]
    try:
        if os.environ.get("HEADWATER_WITHOUT_EXTENSION"):
            raise OSError("HEADWATER_WITHOUT_EXTENSION is set")
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr.strip()[-500:])
    except OSError as error:
        print(f"the broker's extension is not built, Python does its work: {error}", file=sys.stderr)
        _TARGET.unlink(missing_ok=True)
        return False
    new_path.replace(_TARGET)
    return True


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    sys.exit(not compile_extension())
