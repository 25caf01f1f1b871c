"""What a cluster's Python needs of us: our packages, and the modules beside a job, as one zip."""

import hashlib
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from headwater_streams.storage.atomic_file import atomic_file

_PACKAGES = ("headwater", "headwater_broker", "headwater_streams")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files give the same zip


def packages_zip(folder: Path, modules: Iterable[Path] = ()) -> Path:
    """Writes the zip, named by its content, unless it is there.

    Args:
        folder: Where it goes.
        modules: Further modules, at the zip's top.
    """
    files = [*_package_files(), *((path, path.name) for path in sorted(modules))]
    digest = hashlib.sha256()
    for path, name in files:
        digest.update(name.encode() + b"\0" + path.read_bytes())
    target = folder / f"headwater-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        with atomic_file(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, name in files:
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    return target


def modules_beside(job_modules: Iterable[Path]) -> set[Path]:
    """The other modules that job modules imported from their own folders."""
    paths = set(job_modules)
    folders = {path.parent for path in paths}
    neighbours = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and Path(file).parent in folders and Path(file) not in paths:
            neighbours.add(Path(file))
    return neighbours


def _package_files() -> Iterator[tuple[Path, str]]:
    for package in _PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".toml", ".json") and "_shipped" not in path.parts:
                yield path, str(path.relative_to(root.parent))
