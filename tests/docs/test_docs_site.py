"""`make docs` builds all pages without a warning, and what it builds loads nothing from a network."""

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LOADS = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("link", "href"),
    ("object", "data"),
    ("source", "src"),
}


class Loaded(HTMLParser):
    """The addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if value and (tag, name) in _LOADS]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the recipe of `make docs` builds, in a folder of its own."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^docs:.*\n\t@(.*mkdocs build.*)$", makefile, re.MULTILINE)
    folder = tmp_path_factory.mktemp("site")
    assignments, words = [], shlex.split(recipe)
    while "=" in words[0]:
        assignments.append(words.pop(0).split("=", 1))
    assert words.pop(0) == "$(BIN)/mkdocs"
    command = [sys.executable, "-m", "mkdocs", *words, "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | dict(assignments), capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert built.stdout + built.stderr == ""
    return folder


def test_site_has_every_page_and_a_contents_that_leads_to_it(site: Path) -> None:
    contents = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / name).is_file(), name
        assert f'href="{name}"' in contents, f"{name} is not in the contents"


def test_site_loads_nothing_from_a_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        found = Loaded()
        found.feed(page.read_text(encoding="utf-8"))
        addresses = [address for address in found.addresses if not address.startswith(("data:", "#"))]
        assert [address for address in addresses if re.match(r"(?:\w+:)?//", address)] == [], page
        assert [address for address in addresses if not _file_of(address, page, site).exists()] == [], page


def _file_of(address: str, page: Path, site: Path) -> Path:
    """What a page loads; 404.html, which a server shows anywhere, names files from the root."""
    path = re.split(r"[?#]", address)[0]
    return site / path[1:] if path.startswith("/") else page.parent / path


def test_site_styles_load_nothing_from_a_network(site: Path) -> None:
    for style in site.rglob("*.css"):
        assert (
            re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")) == []
        ), style


def test_site_draws_its_pictures_with_the_mermaid_that_it_has(site: Path) -> None:
    """The theme's own script would load another one from the network where none is there."""
    drawn = [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text(encoding="utf-8")]
    for page in drawn:
        assert "assets/vendor/mermaid.js" in page.read_text(encoding="utf-8"), page
    assert 'globalThis["mermaid"]' in (site / "assets" / "vendor" / "mermaid.js").read_text(encoding="utf-8")


def test_site_with_a_dead_link_is_not_built_though_the_build_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](nowhere.md)\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text("site_name: One\nhooks: [alone.py]\n", encoding="utf-8")
    # Without the rest of the hook, which makes the reference.
    (tmp_path / "alone.py").write_text("from hook import on_startup\n", encoding="utf-8")
    paths = [str(ROOT / "tools" / "docs"), *filter(None, [os.environ.get("PYTHONPATH")])]
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 1, built.stdout + built.stderr
    assert "'nowhere.md'" in built.stderr
