"""Pages of the documentation as programs: what their fenced blocks are, and a run of a page from top to bottom.

| Fence | What it is |
|---|---|
| any language with `title="path"` | writes that file |
| `console` | lines that begin with `$ ` are commands (`\\` at the end goes on), those below them their output |
| `python` | is run, all of a page in one process |
| `mermaid` | a picture |
| `text` | something to look at |

`…` in an output stands for anything within a line, a line of `…` alone for any lines. A block behind
`<!-- not run: reason -->` is not run. A page is run in an empty folder, which is its home's, too.

Two things differ between a page and its run, and are replaced in commands and in outputs. A page has 9092 to 9095 for
the ports of brokers, and a run has free ones. A page shows the id of a backfill, `delays-1f0c92ab`, and a run has the
one that its command printed in that place.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PORTS = range(9092, 9096)
"""The ports that pages use: Kafka's own and those behind it."""

Kind = Literal["file", "console", "python", "picture", "text", "not run"]

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_INFO = re.compile(r"^(?P<language>[\w+-]*)(?:\s+title=\"(?P<title>[^\"]+)\")?(?:\s+\w+=\"[^\"]*\")*$")
_NOT_RUN = re.compile(r"<!--\s*not run:\s*(?P<reason>.*?)\s*-->$")
_OWNER = re.compile(r" *(?:[-*+] |\d+\. |!!! |\?\?\?|=== )")
_SPARK = re.compile(
    r"\bpyspark\b|^\s*(?:import|from) headwater\b(?!_)|headwater (?:jobs|backfill|quality|demo|setup)\b|--engine spark",
    re.MULTILINE,
)
_BROKER = re.compile(r"headwater up\b|headwater_broker|HEADWATER_BOOTSTRAP")


_ID = re.compile(r"\b([A-Za-z_]\w*)-[0-9a-f]{8}(?:-\d+)?\b")


class PageError(AssertionError):
    """A page is wrong: a run of it does something else."""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: The line of its fence, from 1.
        language: The word behind the fence.
        title: The file that it is, if one is named.
        text: Its text.
        reason: Why it is not run; None if the page gives no reason.
    """

    line: int
    language: str
    title: str | None
    text: str
    reason: str | None

    @property
    def kind(self) -> Kind | None:
        """What a run does with it; None if that is not known."""
        if self.reason is not None:
            return "not run"
        if self.title is not None:
            return "file"
        kinds: Mapping[str, Kind] = {
            "console": "console",
            "python": "python",
            "mermaid": "picture",
            "text": "text",
        }
        return kinds.get(self.language)

    @property
    def problem(self) -> str | None:
        """What is wrong with the block itself."""
        if self.kind is None:
            return (
                f"{self.language or 'no language'!r} is none of console, python, mermaid and text: give it a "
                'title="file", or write <!-- not run: reason --> above it'
            )
        if self.reason == "":
            return "it says that it is not run, and not why"
        if self.kind == "text" and re.search(r"^\s*\$ ", self.text, re.MULTILINE):
            return "a command stands in it: write `console`"
        if self.kind == "console" and not self.text.startswith("$ "):
            return "it does not begin with a command, `$ ...`"
        if self.title is not None and (Path(self.title).is_absolute() or ".." in Path(self.title).parts):
            return f"{self.title} is no file below the page's folder"
        return None


def pages() -> list[Path]:
    """The pages of docs/, and the README."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page.

    Raises:
        PageError: A fence is not closed, or is not written as this module reads it.
    """
    lines = text.splitlines()
    blocks: list[Block] = []
    numbers = iter(range(len(lines)))
    for number in numbers:
        opened = _FENCE.match(lines[number])
        if opened is None:
            continue
        info = _INFO.match(opened["info"].strip())
        if info is None:
            raise PageError(
                f'line {number + 1}: {lines[number].strip()!r}: write the language, then title="file"'
            )
        close = re.compile(rf"^ *{opened['fence'][0]}{{{len(opened['fence'])},}}\s*$")
        end = next((at for at in range(number + 1, len(lines)) if close.match(lines[at])), None)
        if end is None:
            raise PageError(f"line {number + 1}: the block is not closed")
        inner = [line.removeprefix(opened["indent"]) for line in lines[number + 1 : end]]
        above = next((line.strip() for line in reversed(lines[:number]) if line.strip()), "")
        not_run = _NOT_RUN.search(above)
        blocks.append(
            Block(
                number + 1,
                info["language"],
                info["title"],
                "".join(f"{line}\n" for line in inner),
                not_run["reason"] if not_run else None,
            )
        )
        for number in numbers:
            if number == end:
                break
    return blocks


def indented_code(text: str) -> list[int]:
    """The lines at which code begins that is only indented, so that nothing says what it is.

    Indented text below an item of a list, or an admonition, belongs to that.
    """
    starts = []
    inside = {
        line
        for block in blocks_of(text)
        for line in range(block.line, block.line + block.text.count("\n") + 2)
    }
    owner = ""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if number in inside:
            before = "```"
            continue
        if line.startswith("    ") and line.strip():
            if not before.strip() and not _OWNER.match(owner):
                starts.append(number)
        elif line.strip():
            owner = line if not line.startswith(" ") or _OWNER.match(line) else owner
        before = line
    return starts


def runs(page: Path) -> bool:
    """Whether there is something to run in a page."""
    return any(
        block.kind in ("file", "console", "python") for block in blocks_of(page.read_text(encoding="utf-8"))
    )


def needs_spark(page: Path) -> bool:
    """Whether a run of a page starts Spark."""
    return bool(_SPARK.search(_program(page)))


def needs_broker(page: Path) -> bool:
    """Whether a run of a page starts or asks a broker."""
    return bool(_BROKER.search(_program(page)))


def _program(page: Path) -> str:
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    return "\n".join(block.text for block in blocks if block.kind in ("file", "console", "python"))


@dataclass(frozen=True)
class Step:
    """A command of a console.

    Attributes:
        line: Its line in the page.
        command: The command, without its prompt.
        output: What it is to print.
    """

    line: int
    command: str
    output: str


def steps_of(block: Block) -> Iterator[Step]:
    """The commands of a console with their outputs."""
    command: list[str] = []
    output: list[str] = []
    begin = block.line
    goes_on = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if goes_on:
            command.append(line)
        elif line.startswith("$ "):
            if command:
                yield Step(begin, "\n".join(command), "\n".join(output))
            begin, command, output = number, [line.removeprefix("$ ")], []
        else:
            output.append(line)
            continue
        goes_on = line.endswith("\\")
    if command:
        yield Step(begin, "\n".join(command), "\n".join(output))


def matches(expected: str, actual: str) -> bool:
    """Whether an output is what a page shows.

    Example:
        >>> matches("ready …\\n…\\nend", "ready 127.0.0.1:9092\\none\\ntwo\\nend\\n")
        True
        >>> matches("ready …", "ready x\\nand more")
        False
    """
    pattern = ""
    for line in _lines(expected):
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += "[^\n]*".join(re.escape(part) for part in line.split("…")) + "\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(actual))) is not None


def _lines(text: str) -> list[str]:
    """The lines of an output without blanks at their ends, and without blank lines before and behind."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").splitlines()


class PageRun:
    """A run of a page in an empty folder.

    Args:
        folder: The folder.
        work: Another folder, for what the run itself keeps.
        timeout_s: The longest that a command or a block may take.
    """

    def __init__(self, folder: Path, work: Path, timeout_s: float = 300) -> None:
        self._folder = folder
        self._work = work
        self._timeout_s = timeout_s
        self._first_port = free_ports(len(PORTS))
        self._ids: dict[str, str] = {}  # of the page -> of the run
        self._shell: _Process | None = None
        self._python: _Process | None = None

    def run(self, page: Path) -> None:
        """Runs all of a page.

        Raises:
            PageError: A block fails, or prints something else than the page shows, or brokers that the page started
                run on behind it.
        """
        try:
            for block in blocks_of(page.read_text(encoding="utf-8")):
                self._block(name_of(page) if ROOT in page.parents else page.name, block)
            if self._is_up():
                raise PageError(f"{page.name} leaves its brokers running; end it with `$ headwater down`")
        finally:
            self.close()

    def close(self) -> None:
        """Ends whatever the page has left running."""
        if self._is_up():
            _once([sys.executable, "-m", "headwater.cli", "down"], self._folder, self._environ())
        for process in (self._shell, self._python):
            if process is not None:
                process.close()

    def _block(self, page: str, block: Block) -> None:
        if block.kind == "file":
            path = self._folder / str(block.title)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._as_run(block.text), encoding="utf-8")
        elif block.kind == "python":
            if self._python is None:
                driver = [sys.executable, "-u", "-c", _DRIVER]
                self._python = _Process(driver, self._folder, self._environ(), self._work)
            status, output = self._python.run(self._as_run(block.text), self._timeout_s)
            if status != 0:
                raise PageError(f"{page} line {block.line}: the block failed:\n{self._as_on_page(output)}")
        elif block.kind == "console":
            for step in steps_of(block):
                self._step(page, step)

    def _step(self, page: str, step: Step) -> None:
        if self._shell is None:
            self._shell = _Process(
                ["bash", "--noprofile", "--norc"], self._folder, self._environ(), self._work
            )
        status, output = self._shell.run(self._as_run(step.command), self._timeout_s)
        self._note_ids(step.output, output)
        printed = self._as_on_page(output)
        if not matches(step.output, printed):
            raise PageError(
                f"{page} line {step.line}: $ {step.command}\n--- the page shows\n{step.output}\n--- it printed "
                f"(exit status {status})\n{printed}"
            )
        if status != 0 and not step.output.strip():
            raise PageError(
                f"{page} line {step.line}: $ {step.command}\nended with status {status}, in silence"
            )

    def _is_up(self) -> bool:
        return (self._folder / ".headwater" / "stack" / "stack.json").exists()

    def _environ(self) -> dict[str, str]:
        omitted = {name for name in os.environ if name.startswith("HEADWATER_")} - {"HEADWATER_JARS"} | {
            "COLUMNS"
        }
        environ = {name: value for name, value in os.environ.items() if name not in omitted}
        path = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")])
        return environ | {
            "PATH": path,
            "PYTHONUNBUFFERED": "1",
            "HEADWATER_STACK_PORT": str(self._first_port),
        }

    def _as_run(self, text: str) -> str:
        """A text of the page with the ports and ids of the run."""
        named = _ID.sub(lambda match: self._ids.get(match[0], match[0]), text)
        return _moved(named, PORTS[0], self._first_port)

    def _as_on_page(self, text: str) -> str:
        """An output with the page's ports and ids, and `…` for the run's folder, as each reader has another."""
        pages_own = {id_of_run: id_of_page for id_of_page, id_of_run in self._ids.items()}
        named = _ID.sub(lambda match: pages_own.get(match[0], match[0]), text)
        return _moved(named, self._first_port, PORTS[0]).replace(str(self._folder.resolve()), "…")

    def _note_ids(self, expected: str, output: str) -> None:
        """Pairs the ids that a page shows first here with those that a command printed, in their order by name."""
        printed = [match for match in _ID.finditer(output) if match[0] not in self._ids.values()]
        for page_id in _ID.finditer(expected):
            same = next((match for match in printed if match[1] == page_id[1]), None)
            if page_id[0] not in self._ids and same is not None:
                self._ids[page_id[0]] = same[0]
                printed = [match for match in printed if match[0] != same[0]]


def _moved(text: str, first: int, to: int) -> str:
    """A text with the ports from `to` on in place of those from `first` on."""
    ports = {str(first + at): str(to + at) for at in range(len(PORTS))}
    return re.sub(rf"\b(?:{'|'.join(ports)})\b", lambda match: ports[match[0]], text)


class _Process:
    """A shell or an interpreter that takes one piece of program after the other.

    Each piece is in a file of its own. Its output ends with a line of a mark and its status.
    """

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str], work: Path) -> None:
        self._is_shell = command[0] == "bash"
        self._work = work
        self._numbers = count(1)
        self._mark = f"--- page {os.urandom(8).hex()}"
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environ, "PAGE_MARK": self._mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, program: str, timeout_s: float) -> tuple[int, str]:
        """Runs a piece; returns its status and what was printed, standard error among it."""
        path = self._work / f"{next(self._numbers)}.{'sh' if self._is_shell else 'py'}"
        path.write_text(program, encoding="utf-8")
        assert self._process.stdin is not None
        line = f"{path}\n"
        if self._is_shell:
            line = (
                f"{{ eval \"$(cat '{path}')\"; }} < /dev/null\nprintf '\\n%s %s\\n' '{self._mark}' \"$?\"\n"
            )
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        return self._read(timeout_s)

    def _read(self, timeout_s: float) -> tuple[int, str]:
        assert self._process.stdout is not None
        end = re.compile(rb"\n" + re.escape(self._mark.encode()) + rb" (\d+)\n")
        deadline = time.monotonic() + timeout_s
        output = b""
        while (match := end.search(output)) is None:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            output += part
            if not part:
                why = "it ended the page's process" if ready else f"it took more than {timeout_s} s"
                return 1, output.decode(errors="replace") + f"\n[{why}]"
        return int(match[1]), output[: match.start()].decode(errors="replace")

    def close(self) -> None:
        """Ends the process and all that it has started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


_DRIVER = """
import os, sys, traceback
sys.path[0] = ""
for _path in sys.stdin:
    _path, _status = _path.rstrip("\\n"), 0
    try:
        with open(_path, encoding="utf-8") as _file:
            exec(compile(_file.read(), _path, "exec"), globals())
    except BaseException:
        traceback.print_exc()
        _status = 1
    sys.stderr.flush()
    print(f"\\n{os.environ['PAGE_MARK']} {_status}", flush=True)
"""


def _once(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
    subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, check=False, timeout=120)


def free_ports(number: int) -> int:
    """The first of so many free ports that follow each other."""
    while True:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            first = int(probe.getsockname()[1])
        sockets = []
        with suppress(OSError, OverflowError):
            for port in range(first, first + number):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
        bound = len(sockets) == number and all(each.getsockname()[1] for each in sockets)
        for each in sockets:
            each.close()
        if bound:
            return first
