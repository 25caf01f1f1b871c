"""`make release`: builds wheel and sdist, checks both, and runs the demo from the wheel in an empty environment.

Nothing is published and nothing is tagged. What it made is in dist/.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGES = {"headwater", "headwater_broker", "headwater_client", "headwater_streams"}
_IN_SDIST = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "conf/jars.lock"}
_IN_WHEEL = {
    "headwater/py.typed",
    "headwater/_shipped/conf/jars.lock",
    "headwater_streams/quality/page/page.css",
}


class ReleaseError(Exception):
    """Something is wrong in a release; the message says what."""


def version() -> str:
    """The version in the code."""
    text = (ROOT / "platform" / "headwater" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert match is not None
    return match[1]


def problems_of_changes(changelog: str, fragments: list[str], number: str) -> Iterator[str]:
    """What the changelog lacks for a release."""
    if not re.search(rf"^## {re.escape(number)} ", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section of {number}: make changelog"
    if fragments:
        yield f"changes/ still has {', '.join(sorted(fragments))}: make changelog"


def problems_of_metadata(text: bytes, number: str) -> Iterator[str]:
    """What is wrong with the metadata of a distribution."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as errors:
        yield from (str(each) for each in errors.exceptions)
        return
    if str(metadata.version) != number:
        yield f"its version is {metadata.version}, and the code's {number}"
    if metadata.description_content_type != "text/markdown" or not (metadata.description or "").strip():
        yield "its description is not the README in Markdown"
    if not metadata.summary or not metadata.requires_python or not metadata.license_expression:
        yield "it has no summary, no least Python or no licence"


def problems_of_wheel(wheel: Path, number: str) -> Iterator[str]:
    """What is wrong with a wheel: its metadata, its contents, its RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = f"headwater-{number}.dist-info"
        if f"{info}/METADATA" not in names:
            yield f"it has no {info}/METADATA"
            return
        yield from problems_of_metadata(archive.read(f"{info}/METADATA"), number)
        tops = {name.split("/")[0] for name in names}
        if tops != PACKAGES | {info}:
            yield f"it has {', '.join(sorted(tops))} on top"
        needed = _IN_WHEEL | {f"{info}/entry_points.txt", f"{info}/licenses/LICENSE"}
        yield from (f"it has no {name}" for name in sorted(needed - set(names)))
        yield from (f"it has {name}" for name in names if "__pycache__" in name or name.startswith("tests"))
        recorded = dict(_recorded(archive.read(f"{info}/RECORD").decode()))
        for name in names:
            if name != f"{info}/RECORD" and recorded.get(name) != hashlib.sha256(archive.read(name)).digest():
                yield f"its RECORD has another digest of {name}, or none"


def _recorded(record: str) -> Iterator[tuple[str, bytes]]:
    for line in record.splitlines():
        name, digest, _ = line.rsplit(",", 2)
        if digest:
            yield name, urlsafe_b64decode(digest.removeprefix("sha256=") + "==")


def problems_of_sdist(sdist: Path, number: str) -> Iterator[str]:
    """What is wrong with an sdist: its metadata, its contents."""
    top = f"headwater-{number}/"
    with tarfile.open(sdist) as archive:
        names = {member.name for member in archive.getmembers()}
        if not all(name.startswith(top) for name in names):
            yield f"not all of it is below {top}"
            return
        info = archive.extractfile(f"{top}PKG-INFO")
        assert info is not None
        yield from problems_of_metadata(info.read(), number)
    inner = {name.removeprefix(top) for name in names}
    yield from (f"it has no {name}" for name in sorted(_IN_SDIST - inner))
    unwanted = re.compile(r"(^|/)(__pycache__|\.venv|\.headwater|build|dist)/|\.so$")
    yield from (f"it has {name}" for name in sorted(inner) if unwanted.search(name))


def _run(*command: str, cwd: Path, environ: dict[str, str] | None = None) -> str:
    print("$", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=cwd, env=environ, text=True, stdout=subprocess.PIPE, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, so that the wheel has nothing that the sdist lacks."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT), cwd=ROOT)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def try_out(wheel: Path, demo: list[str]) -> None:
    """Installs the wheel in an environment of its own and runs the demo there, away from the checkout."""
    with tempfile.TemporaryDirectory(prefix="headwater-release-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(*pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[spark,demo]", cwd=folder)
        environ = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HEADWATER_HOME")
        }
        headwater = str(programs / "headwater")
        printed = _run(headwater, "--version", cwd=folder, environ=environ).strip()
        if printed != version():
            raise ReleaseError(f"headwater --version says {printed!r}, and the code {version()!r}")
        _run(headwater, "setup", cwd=folder, environ=environ)
        ended = _run(headwater, "demo", *demo, cwd=folder, environ=environ)
        if "demo: ok" not in ended:
            raise ReleaseError("the demo did not end in `demo: ok`")


def main() -> int:
    """Makes and tries a release; the status is 1 if something is wrong with it."""
    parser = argparse.ArgumentParser(description="Build, check and try a release.")
    parser.add_argument(
        "--draft", action="store_true", help="the changelog need not have the version's section"
    )
    options, demo = parser.parse_known_args()
    number = version()
    try:
        problems = []
        if not options.draft:
            fragments = [each.name for each in (ROOT / "changes").glob("*.md") if each.name != "README.md"]
            changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
            problems += problems_of_changes(changelog, fragments, number)
        sdist, wheel = build()
        problems += [f"{sdist.name}: {each}" for each in problems_of_sdist(sdist, number)]
        problems += [f"{wheel.name}: {each}" for each in problems_of_wheel(wheel, number)]
        if problems:
            raise ReleaseError("\n".join(problems))
        try_out(wheel, demo)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"release: ok: {sdist.name} and {wheel.name} are in dist/; tag the commit v{number}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
