"""conf/headwater.toml documents every setting, and says what the code does."""

import re
import tomllib

from headwater.config import Settings, known_keys, load_settings, shipped_dir

_TEXT = (shipped_dir("conf") / "headwater.toml").read_text(encoding="utf-8")
_FREE_TABLES = ("broker", "spark.conf", "client.kafka", "cluster")


def _entries() -> dict[str, tuple[bool, bool]]:
    """Of each key and free table: whether a comment stands above it, and whether that is set off by a blank line."""
    found = {}
    section = ""
    lines = _TEXT.splitlines()
    for index, line in enumerate(lines):
        header = re.match(r"\[([\w.]+)\]", line)
        key = re.match(r"(\w+) =", line)
        if header:
            section = header.group(1)
        if header and section in _FREE_TABLES:
            name = section
        elif key:
            name = f"{section}.{key.group(1)}"
        else:
            continue
        start = index
        while start > 0 and lines[start - 1].startswith("#"):
            start -= 1
        found[name] = start < index, lines[start - 1] == ""
    return found


def test_shipped_file_has_every_key_and_no_other() -> None:
    assert sorted(_entries()) == sorted(known_keys())


def test_shipped_file_comments_every_key() -> None:
    assert [name for name, (commented, _) in _entries().items() if not commented] == []
    assert [name for name, (_, set_off) in _entries().items() if not set_off] == []


def test_shipped_file_gives_the_defaults_of_the_code() -> None:
    assert Settings.model_validate(tomllib.loads(_TEXT)) == Settings()


def test_settings_without_other_sources_are_the_defaults(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({}).settings == Settings()
