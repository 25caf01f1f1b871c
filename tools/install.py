"""Installs Headwater, its extras and the pinned versions into a virtual environment: `install.py VENV`.

uv does it: the one on PATH, or a wheel of it that pip installs into the environment first. Where there is none, or
where it fails, pip does it. uv does not read pip's files and variables, so what they say (an index, a certificate, a
proxy) is handed to it as its own variables and options; where it has none for a setting, pip installs.
HEADWATER_INSTALLER=pip leaves uv out.

It runs on a bare Python, so it imports nothing but the standard library.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_WANTED = ("-c", "constraints.txt", "-e", ".[spark,demo,dev,docs]")
_SILENT_S = 5.0  # as long as nothing new is to be said, a line tells what goes on
_LAST_LINES = 40  # of what an installer printed, where it failed
_SHOWN = 90  # characters of its last line, where it is silent

TAKES = (
    "once, two to seven minutes on 2 cores, most of them for PySpark (430 MB); seconds where all is cached"
)

_PIP_DOWNLOADS = re.compile(r"\s*Downloading (?P<name>\S+?)(?:\.whl|\.tar\.gz|\.zip) \((?P<size>[^)]*)\)")
_PIP_BUILDS = re.compile(r"\s*Building (?:wheel|editable) for (?P<name>\S+) .*: started")
_PIP_INSTALLS = re.compile(r"Installing collected packages: (?P<names>.*)")
_UV_STARTS = re.compile(
    r"\s*(?P<verb>Downloading|Building) (?!wheels? for|editable for|\S*\.metadata)"
    r"(?P<rest>(?P<name>[^\s=@]+)\S*(?: \(.*\))?)"
)
_UV_ENDS = re.compile(r"\s*(?P<verb>Downloaded|Built) (?P<name>[^\s=@]+)")
_KEPT = re.compile(
    r"(?:(?:Resolved|Prepared|Installed|Uninstalled|Successfully)\b|(?:warning|error):).{0,200}$",
    re.IGNORECASE,
)

# Of pip's settings: these decide how pip talks, or change nothing in an environment of one's own with pinned versions.
_WITHOUT_EFFECT = frozenset((
    "break-system-packages", "cache-dir", "compile", "debug", "disable-pip-version-check",
    "force-reinstall", "isolated", "log", "no-color", "no-compile", "no-input", "no-python-version-warning",
    "no-warn-conflicts", "no-warn-script-location", "prefer-binary", "progress-bar", "quiet",
    "require-virtualenv", "resume-retries", "root-user-action", "upgrade", "upgrade-strategy", "use-pep517",
    "user", "verbose", "yes",
))  # fmt: skip


class UntranslatableError(Exception):
    """Settings of pip that uv has no counterpart for."""


@dataclass(frozen=True)
class UvSettings:
    """What uv is to be given so that it does as pip was told.

    Attributes:
        environ: Variables, beside those that are set.
        arguments: Options of `uv pip install`.
    """

    environ: dict[str, str]
    arguments: tuple[str, ...]


def pip_settings(listing: str) -> dict[str, str]:
    """The settings that hold for `pip install`, of what `pip config list` prints."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for name, value in re.findall(r"^(\S+?)=('.*'|\".*\")$", listing, re.MULTILINE):
        section, _, key = name.rpartition(".")
        if section in sections:
            sections[section]["timeout" if key == "default-timeout" else key] = str(ast.literal_eval(value))
    return sections["global"] | sections["install"] | sections[":env:"]


def uv_settings(pip: Mapping[str, str], environ: Mapping[str, str]) -> UvSettings:
    """pip's settings as uv's. What a person has set for uv itself comes first.

    Raises:
        UntranslatableError: uv cannot be told all of them.
    """
    told: dict[str, str] = {}
    arguments: list[str] = []
    unknown: list[str] = []
    for key, value in pip.items():
        words = value.split()
        if key in _WITHOUT_EFFECT or not words:
            continue
        if key == "index-url":
            if not any(environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
                told["UV_DEFAULT_INDEX"] = value
        elif key == "extra-index-url":
            # pip takes the best version of all indexes, uv by itself that of the first one that has the package.
            told |= {"UV_INDEX": " ".join(words), "UV_INDEX_STRATEGY": "unsafe-best-match"}
        elif key == "find-links":
            # pip passes over a folder that is not there, uv ends.
            told["UV_FIND_LINKS"] = ",".join(word for word in words if "://" in word or Path(word).exists())
        elif key == "constraint":
            told["UV_CONSTRAINT"] = " ".join(words)
        elif key == "cert":
            told["SSL_CERT_FILE"] = value
        elif key == "client-cert":
            told["SSL_CLIENT_CERT"] = value
        elif key == "trusted-host":
            told["UV_INSECURE_HOST"] = " ".join(words)
        elif key == "proxy":
            told["ALL_PROXY"] = value if "://" in value else f"http://{value}"
        elif key == "timeout":
            told["UV_HTTP_TIMEOUT"] = str(int(float(value)))
        elif key == "retries":
            told["UV_HTTP_RETRIES"] = value
        elif key == "keyring-provider" and value in ("disabled", "subprocess"):
            told["UV_KEYRING_PROVIDER"] = value
        elif key in ("no-binary", "only-binary"):
            arguments += [part for each in re.split(r"[\s,]+", value) for part in (f"--{key}", each)]
        elif key in ("no-index", "pre", "no-cache-dir"):
            if value.lower() not in ("0", "no", "false", "off"):
                arguments += {"pre": ["--prerelease", "allow"], "no-cache-dir": ["--no-cache"]}.get(
                    key, [f"--{key}"]
                )
        else:
            unknown.append(key)
    if unknown:
        raise UntranslatableError(", ".join(sorted(unknown)))
    return UvSettings(
        {name: value for name, value in told.items() if value and not environ.get(name)}, tuple(arguments)
    )


class Progress:
    """Says what an installer does: a line for each package that it downloads or builds, and one where it is silent.

    Attributes:
        tail: The last lines that the installer printed, said or not.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Nothing is said yet."""
        self._say = say
        self._started_s = time.monotonic()
        self._at_work: dict[str, str] = {}
        self.tail: deque[str] = deque(maxlen=_LAST_LINES)

    def line(self, line: str) -> None:
        """Takes one line of the installer's output."""
        self.tail.append(line)
        if news := self._news(line):
            self._tell(news)

    def silence(self) -> None:
        """Says what goes on, where nothing was printed for a while."""
        last = self.tail[-1].strip() if self.tail else "starting"
        if len(last) > _SHOWN:
            last = f"{last[:_SHOWN]} ..."
        self._tell(f"still at it: {', '.join(self._at_work.values()) or last}")

    def _news(self, line: str) -> str | None:
        if found := _PIP_DOWNLOADS.match(line):
            return f"downloading {found['name']} ({found['size']})"
        if found := _PIP_BUILDS.match(line):
            return f"building {found['name']}"
        if found := _PIP_INSTALLS.match(line):
            return f"installing {found['names'].count(',') + 1} packages"
        if found := _UV_STARTS.match(line):
            self._at_work[found["name"]] = f"{found['verb'].lower()} {found['rest']}"
            return self._at_work[found["name"]]
        if found := _UV_ENDS.match(line):
            self._at_work.pop(found["name"], None)
            return f"{found['verb'].lower()} {found['name']}"
        return line.strip() if _KEPT.match(line) else None

    def _tell(self, text: str) -> None:
        self._say(f"  [{time.monotonic() - self._started_s:3.0f} s] {text}")


def run(command: Sequence[str], environ: Mapping[str, str], progress: Progress) -> bool:
    """Runs an installer and says what it does; whether it did it."""
    with subprocess.Popen(
        command,
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        silent_s = _SILENT_S
        while True:
            try:
                line = lines.get(timeout=silent_s)
            except queue.Empty:
                progress.silence()
                continue
            if line is None:
                break
            progress.line(line.rstrip())
    return process.returncode == 0


def _read(output: Iterable[str], lines: queue.Queue[str | None]) -> None:
    for line in output:
        lines.put(line)
    lines.put(None)


def _run_aloud(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Runs an installer and says what it does, and its last lines where it fails; whether it did it."""
    progress = Progress(_say)
    done = run(command, environ, progress)
    if not done:
        print(*progress.tail, sep="\n", file=sys.stderr)
    return done


@dataclass(frozen=True)
class Install:
    """One install: the environment, and whether a person looks on at a terminal."""

    venv: Path
    terminal: bool

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return str(self.venv / "bin" / "python")

    def __call__(self) -> bool:
        """Makes the environment and installs everything; whether that went well."""
        uv = shutil.which("uv") if _uv_is_wanted() else None
        if not self._make(uv):
            return False
        try:
            settings = uv_settings(pip_settings(_pip_config(self.python)), os.environ)
        except UntranslatableError as error:
            _say(f"pip installs: uv has no counterpart of pip's {error}")
        else:
            uv = uv or (self._fetched_uv() if _uv_is_wanted() else None)
            if uv and self._by_uv(uv, settings):
                return True
        return self._by_pip()

    @property
    def _has_pip(self) -> bool:
        return (self.venv / "bin" / "pip").exists()

    def _make(self, uv: str | None) -> bool:
        if Path(self.python).exists() and (uv or self._has_pip):
            return True
        if _can_make_environments():
            command = [sys.executable, "-m", "venv", str(self.venv)]
        elif uv:
            command = [uv, "venv", "--quiet", "--python", sys.executable, str(self.venv)]
        else:
            print(_without_pip(), file=sys.stderr)
            return False
        return subprocess.run(command, check=False).returncode == 0

    def _fetched_uv(self) -> str | None:
        """uv as a wheel; none where there is no wheel for this machine, or no index."""
        found = self.venv / "bin" / "uv"
        if not found.exists():
            _say("fetching uv, which installs faster than pip")
            wanted = ("--quiet", "--only-binary", "uv", "-c", "constraints.txt", "uv")
            if not self._pip(*wanted) or not found.exists():
                _say("uv is not to be had; pip installs, which takes longer")
                return None
        return str(found)

    def _by_uv(self, uv: str, settings: UvSettings) -> bool:
        command = [uv, "pip", "install", "--python", self.python, *settings.arguments, *_WANTED]
        environ = os.environ | settings.environ
        if self.terminal:  # it draws bars
            done = subprocess.run(command, env=environ, check=False).returncode == 0
        else:
            done = _run_aloud([*command, "--no-progress"], environ)
        if not done:
            _say("uv could not do it; pip tries")
        return done

    def _by_pip(self) -> bool:
        if not self._has_pip:
            print(_without_pip(), file=sys.stderr)
            return False
        # Older ones install what comes as source in a way that leaves no wheel in the cache.
        self._pip("--quiet", "-c", "constraints.txt", "--upgrade", "pip")
        command = [*self._pip_install, "--progress-bar", "off", *_WANTED]
        return _run_aloud(command, os.environ | {"PYTHONUNBUFFERED": "1"})

    def _pip(self, *arguments: str) -> bool:
        return subprocess.run([*self._pip_install, *arguments], check=False).returncode == 0

    @property
    def _pip_install(self) -> tuple[str, ...]:
        return self.python, "-m", "pip", "install", "--disable-pip-version-check"


def _uv_is_wanted() -> bool:
    return os.environ.get("HEADWATER_INSTALLER") != "pip"


def _can_make_environments() -> bool:
    return all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))


def _without_pip() -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    return (
        f"this Python cannot make a virtual environment: install the package {name} (apt install {name}), "
        "then try again"
    )


def _pip_config(python: str) -> str:
    for each in (python, sys.executable):
        command = [each, "-m", "pip", "config", "list"]
        listed = subprocess.run(command, check=False, capture_output=True, text=True)
        if listed.returncode == 0:
            return listed.stdout
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return "".join(
        f":env:.{name[4:].lower().replace('_', '-')}={value!r}\n" for name, value in variables.items()
    )


def _say(text: str) -> None:
    print(text, flush=True)


def main(venv: Path) -> int:
    """Installs, and says before what that takes and afterwards what it took."""
    os.chdir(ROOT)
    _say(f"installing Headwater and its libraries into {venv}: {TAKES}")
    started_s = time.monotonic()
    done = Install(venv, sys.stderr.isatty())()
    if done:
        _say(f"installed in {time.monotonic() - started_s:.0f} s")
    return 0 if done else 1


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except KeyboardInterrupt:  # the same command goes on with what is cached
        sys.exit(130)
