"""Installs Headwater, its extras and the pinned versions into a virtual environment: `install.py VENV`.

uv does it: the one on PATH, or a wheel of it that pip installs into the environment first. If there is none, or if it
fails, pip does it. uv does not read pip's files and variables, so their settings (an index, a certificate, a proxy) are
passed to it as its own variables and options; if it has none for a setting, pip installs. HEADWATER_INSTALLER=pip
leaves uv out.

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
_REQUIREMENTS = ("-c", "constraints.txt", "-e", ".[spark,registry,demo,notebooks,dev,docs]")
_SILENT_S = 5.0  # after so long without news, a line says what is being done
_LAST_LINES = 40  # of the output of an installer that failed
_LINE_CHARACTERS = 90  # of its last line, when it is silent

TAKES = (
    "once, two to seven minutes on 2 cores, most of them for PySpark (450 MB); seconds where all is cached"
)

_PIP_DOWNLOADS = re.compile(r"\s*Downloading (?P<name>\S+?)(?:\.whl|\.tar\.gz|\.zip) \((?P<size>[^)]*)\)")
_PIP_BUILDS = re.compile(r"\s*Building (?:wheel|editable) for (?P<name>\S+) .*: started")
_PIP_INSTALLS = re.compile(r"Installing collected packages: (?P<names>.*)")
_UV_STARTS = re.compile(
    r"\s*(?P<verb>Downloading|Building) (?!wheels? for|editable for|\S*\.metadata)"
    r"(?P<rest>(?P<name>[^\s=@]+)\S*(?: \(.*\))?)"
)
_UV_ENDS = re.compile(r"\s*(?P<verb>Downloaded|Built) (?P<name>[^\s=@]+)")
_NEWS = re.compile(
    r"(?:(?:Resolved|Prepared|Installed|Uninstalled|Successfully)\b|(?:warning|error):).{0,200}$",
    re.IGNORECASE,
)

# pip's settings that only change its output, or have no effect in an own environment with pinned versions.
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
    """The variables and options with which uv follows pip's settings.

    Attributes:
        environ: Variables, beside those that are set.
        arguments: Options of `uv pip install`.
    """

    environ: dict[str, str]
    arguments: tuple[str, ...]


def pip_settings(listing: str) -> dict[str, str]:
    """The settings for `pip install` in the output of `pip config list`."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for name, value in re.findall(r"^(\S+?)=('.*'|\".*\")$", listing, re.MULTILINE):
        section, _, key = name.rpartition(".")
        if section in sections:
            sections[section]["timeout" if key == "default-timeout" else key] = str(ast.literal_eval(value))
    return sections["global"] | sections["install"] | sections[":env:"]


def uv_settings(pip: Mapping[str, str], environ: Mapping[str, str]) -> UvSettings:
    """pip's settings as uv's. What a person has set for uv itself comes first.

    Raises:
        UntranslatableError: uv has no counterpart for some of them.
    """
    variables: dict[str, str] = {}
    arguments: list[str] = []
    unknown: list[str] = []
    for key, value in pip.items():
        words = value.split()
        if key in _WITHOUT_EFFECT or not words:
            continue
        if key == "index-url":
            if not any(environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
                variables["UV_DEFAULT_INDEX"] = value
        elif key == "extra-index-url":
            # pip takes the best version of all indexes, uv by itself that of the first one that has the package.
            variables |= {"UV_INDEX": " ".join(words), "UV_INDEX_STRATEGY": "unsafe-best-match"}
        elif key == "find-links":
            # pip ignores a folder that does not exist; uv fails.
            variables["UV_FIND_LINKS"] = ",".join(
                word for word in words if "://" in word or Path(word).exists()
            )
        elif key == "constraint":
            variables["UV_CONSTRAINT"] = " ".join(words)
        elif key == "cert":
            variables["SSL_CERT_FILE"] = value
        elif key == "client-cert":
            variables["SSL_CLIENT_CERT"] = value
        elif key == "trusted-host":
            variables["UV_INSECURE_HOST"] = " ".join(words)
        elif key == "proxy":
            variables["ALL_PROXY"] = value if "://" in value else f"http://{value}"
        elif key == "timeout":
            variables["UV_HTTP_TIMEOUT"] = str(int(float(value)))
        elif key == "retries":
            variables["UV_HTTP_RETRIES"] = value
        elif key == "keyring-provider" and value in ("disabled", "subprocess"):
            variables["UV_KEYRING_PROVIDER"] = value
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
        {name: value for name, value in variables.items() if value and not environ.get(name)},
        tuple(arguments),
    )


class Progress:
    """Reports what an installer does: a line for each package that it downloads or builds, and one when it is silent.

    Attributes:
        tail: The last lines that the installer printed, reported or not.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Reports nothing yet."""
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
        """Reports what is being done, when nothing was printed for a while."""
        last = self.tail[-1].strip() if self.tail else "starting"
        if len(last) > _LINE_CHARACTERS:
            last = f"{last[:_LINE_CHARACTERS]} ..."
        self._tell(f"still at it: {', '.join(self._at_work.values()) or last}")

    def _news(self, line: str) -> str | None:
        if match := _PIP_DOWNLOADS.match(line):
            return f"downloading {match['name']} ({match['size']})"
        if match := _PIP_BUILDS.match(line):
            return f"building {match['name']}"
        if match := _PIP_INSTALLS.match(line):
            return f"installing {match['names'].count(',') + 1} packages"
        if match := _UV_STARTS.match(line):
            self._at_work[match["name"]] = f"{match['verb'].lower()} {match['rest']}"
            return self._at_work[match["name"]]
        if match := _UV_ENDS.match(line):
            self._at_work.pop(match["name"], None)
            return f"{match['verb'].lower()} {match['name']}"
        return line.strip() if _NEWS.match(line) else None

    def _tell(self, text: str) -> None:
        self._say(f"  [{time.monotonic() - self._started_s:3.0f} s] {text}")


def run(command: Sequence[str], environ: Mapping[str, str], progress: Progress) -> bool:
    """Runs an installer and reports what it does; returns whether it succeeded."""
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
    """Runs an installer, reports what it does, prints its last lines if it fails; returns whether it succeeded."""
    progress = Progress(_say)
    done = run(command, environ, progress)
    if not done:
        print(*progress.tail, sep="\n", file=sys.stderr)
    return done


@dataclass(frozen=True)
class Install:
    """One install: the environment, and whether a person watches it at a terminal."""

    venv: Path
    terminal: bool

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return str(self.venv / "bin" / "python")

    def __call__(self) -> bool:
        """Makes the environment and installs everything; returns whether that succeeded."""
        uv = shutil.which("uv") if _may_use_uv() else None
        if not self._make(uv):
            return False
        try:
            settings = uv_settings(pip_settings(_pip_config(self.python)), os.environ)
        except UntranslatableError as error:
            _say(f"pip installs: uv has no counterpart of pip's {error}")
        else:
            uv = uv or (self._fetched_uv() if _may_use_uv() else None)
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
        """uv from a wheel; None if there is no wheel for this machine, or no index."""
        path = self.venv / "bin" / "uv"
        if not path.exists():
            _say("fetching uv, which installs faster than pip")
            arguments = ("--quiet", "--only-binary", "uv", "-c", "constraints.txt", "uv")
            if not self._pip(*arguments) or not path.exists():
                _say("uv is not to be had; pip installs, which takes longer")
                return None
        return str(path)

    def _by_uv(self, uv: str, settings: UvSettings) -> bool:
        command = [uv, "pip", "install", "--python", self.python, *settings.arguments, *_REQUIREMENTS]
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
        # Older versions of pip install from source without leaving a wheel in the cache.
        self._pip("--quiet", "-c", "constraints.txt", "--upgrade", "pip")
        command = [*self._pip_install, "--progress-bar", "off", *_REQUIREMENTS]
        return _run_aloud(command, os.environ | {"PYTHONUNBUFFERED": "1"})

    def _pip(self, *arguments: str) -> bool:
        return subprocess.run([*self._pip_install, *arguments], check=False).returncode == 0

    @property
    def _pip_install(self) -> tuple[str, ...]:
        return self.python, "-m", "pip", "install", "--disable-pip-version-check"


def _may_use_uv() -> bool:
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
    """Installs; prints before how long that takes, and afterwards how long it took."""
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
