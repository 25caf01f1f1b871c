"""Pages do what they say: each fenced block is of a known kind, and what needs no broker and no Spark is run here.

The others are run in `e2e/test_pages.py`.
"""

from pathlib import Path

import pytest

from doc_pages import (
    PageError,
    PageRun,
    blocks_of,
    indented_code,
    matches,
    name_of,
    needs_broker,
    needs_spark,
    pages,
    runs,
    steps_of,
)

ALONE = [page for page in pages() if runs(page) and not needs_broker(page) and not needs_spark(page)]


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_pages_have_blocks_of_known_kinds(page: Path) -> None:
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    wrong = [f"{name_of(page)} line {each.line}: {each.problem}" for each in blocks if each.problem]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_pages_have_no_code_that_is_only_indented(page: Path) -> None:
    assert indented_code(page.read_text(encoding="utf-8")) == []


def test_page_code_that_is_only_indented_is_told() -> None:
    text = (
        "One.\n\n    ls\n    pwd\n\n- item\n\n    more of it\n\n```text\nx\n\n    y\n```\n\nTwo.\n\n    cd\n"
    )
    assert indented_code(text) == [3, 18]


def test_pages_name_why_blocks_are_not_run() -> None:
    for page in pages():
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.reason is not None:
                print(f"{name_of(page)} line {block.line}: {block.language}: {block.reason}")
                assert len(block.reason.split()) > 1, f"{name_of(page)} line {block.line}: say why in words"


def test_pages_without_a_broker_run_from_top_to_bottom(tmp_path: Path) -> None:
    for number, page in enumerate(ALONE):
        (tmp_path / str(number)).mkdir()
        run_in(tmp_path / str(number), page)


def run_in(tmp_path: Path, page: Path) -> None:
    """Runs a page in a folder below `tmp_path`."""
    for name in ("page", "work"):
        (tmp_path / name).mkdir()
    PageRun(tmp_path / "page", tmp_path / "work", timeout_s=60).run(page)


def write(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_page_writes_files_runs_commands_and_keeps_one_interpreter(tmp_path: Path) -> None:
    page = write(
        tmp_path,
        """
A page.

```python title="jobs/say.py"
WORD = "9092"
```

```console
$ cd jobs && name=reader
$ python -c 'import say; print("hello", say.WORD)'
hello 9092
$ printf '%s\\n' one two \\
    three "$name"
one
…
reader
$ cat nothing
cat: nothing: …
```

```python
counted = 1
```

```python
import sys
assert counted == 1, sys.path
open("left", "w").write("9092")
```

1. In a list:

    ```console
    $ ls
    say.py
    …
    $ cat ../left
    9092
    $ test "$(cat ../left)" != 9"0"92; echo $?
    0
    ```

<!-- not run: it is Java's -->
```java
System.exit(1);
```
""",
    )
    run_in(tmp_path, page)


def test_page_ids_of_backfills_stand_for_those_that_are_printed(tmp_path: Path) -> None:
    page = write(
        tmp_path,
        """
```console
$ for id in 00000001 00000002-2; do echo "plan of delays-$id and x-$id"; done
plan of delays-1f0c92ab and …
plan of delays-1f0c92ab-2 and x-…
$ echo delays-1f0c92ab-2 > second; cat second | cut -c 1-15
delays-00000002
```

```python
assert "delays-1f0c92ab" == "delays-" + "00000001"
```
""",
    )
    run_in(tmp_path, page)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "```console\n$ echo one\ntwo\n```\n",
            "--- the page shows\ntwo\n--- it printed (exit status 0)\none",
        ),
        ("```console\n$ echo one\n```\n", "--- it printed (exit status 0)\none"),
        ("```console\n$ false\n```\n", "ended with status 1, in silence"),
        ("```console\n$ exit 3\n```\n", "it ended the page's process"),
        (
            "```console\n$ headwater nothing\nheadwater: there is no verb nothing\n```\n",
            "the verbs are up, down",
        ),
        ("```python\nlost\n```\n", "NameError: name 'lost' is not defined"),
        ("```python\nlost\n", "line 1: the block is not closed"),
        ("```{.python}\n```\n", "write the language"),
    ],
)
def test_page_that_does_something_else_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PageError) as told:
        run_in(tmp_path, write(tmp_path, text))
    assert "line 1" in str(told.value) or "line 2" in str(told.value)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```\nx\n```\n", "'no language' is none of"),
        ("```sql\nselect 1\n```\n", "'sql' is none of"),
        ("```text\n$ ls\n```\n", "a command stands in it"),
        ("```console\nls\n```\n", "does not begin with a command"),
        ('```sql title="../x.sql"\nselect 1\n```\n', "no file below the page's folder"),
        ("<!-- not run: -->\n```sql\nselect 1\n```\n", "not why"),
    ],
)
def test_page_block_of_no_known_kind_is_told(block: str, problem: str) -> None:
    (found,) = blocks_of(block)
    assert problem in (found.problem or "")


def test_page_steps_go_on_behind_a_backslash() -> None:
    (block,) = blocks_of("x\n\n```console\n$ a \\\n  b\nout\n\nmore\n$ c\n```\n")
    assert [(step.line, step.command, step.output) for step in steps_of(block)] == [
        (4, "a \\\n  b", "out\n\nmore"),
        (9, "c", ""),
    ]


@pytest.mark.parametrize(
    ("expected", "actual", "fits"),
    [
        ("a", "a\n", True),
        ("a …", "a b\n", True),
        ("a…", "a", True),
        ("a…c", "abc", True),
        ("a…c", "ab\nc", False),
        ("…\nz", "z", True),
        ("…\nz", "a\nb\nz", True),
        ("a\n…", "a", True),
        ("a.c", "abc", False),
        ("a\n\nb", "  \na  \n \nb\n  \n", True),
        ("", "", True),
        ("", "a", False),
        ("a\n\nb", "a\nb", False),
    ],
)
def test_page_output_is_compared_with_gaps(expected: str, actual: str, *, fits: bool) -> None:
    assert matches(expected, actual) is fits


def test_pages_that_need_spark_or_a_broker_are_told_by_what_they_run(tmp_path: Path) -> None:
    texts = {
        "```console\n$ headwater up\n```\n": (True, False),
        "```python\nimport headwater as hw\n```\n": (False, True),
        "```python\nfrom headwater_broker.testing import broker\n```\n": (True, False),
        "```console\n$ headwater jobs run x.py\n```\n": (False, True),
        "Of `headwater up` it only speaks.\n\n```text\nimport pyspark\n```\n": (False, False),
    }
    for text, needs in texts.items():
        page = write(tmp_path, text)
        assert (needs_broker(page), needs_spark(page)) == needs, text
