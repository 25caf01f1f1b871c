"""`make setup`: settings of pip hold for uv, too, progress is shown by package, and pip installs where uv cannot."""

import os
import stat
import sys
from pathlib import Path

import pytest

import install
from install import Progress, UntranslatableError, UvSettings, pip_settings, run, uv_settings

LISTING = """\
:env:.default-timeout='180'
:env:.index-url='https://a.example/simple'
download.no-binary=':all:'
global.cert='/etc/ca.pem'
global.index-url='https://b.example/simple'
install.find-links='/nowhere\\n/'
global.disable-pip-version-check="1"
"""


def of_pip(**settings: str) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in settings.items()}


def test_settings_of_pip_are_those_of_its_install_with_variables_first() -> None:
    assert pip_settings(LISTING) == of_pip(
        timeout="180",
        index_url="https://a.example/simple",
        cert="/etc/ca.pem",
        find_links="/nowhere\n/",
        disable_pip_version_check="1",
    )


def test_settings_of_pip_are_handed_to_uv() -> None:
    assert uv_settings(pip_settings(LISTING), {}) == UvSettings(
        {
            "UV_DEFAULT_INDEX": "https://a.example/simple",
            "UV_FIND_LINKS": "/",  # pip passes over a folder that is not there
            "UV_HTTP_TIMEOUT": "180",
            "SSL_CERT_FILE": "/etc/ca.pem",
        },
        (),
    )


@pytest.mark.parametrize(
    ("setting", "environ", "arguments"),
    [
        (
            of_pip(extra_index_url="https://a/s\nhttps://b/s"),
            {"UV_INDEX": "https://a/s https://b/s", "UV_INDEX_STRATEGY": "unsafe-best-match"},
            (),
        ),
        (of_pip(constraint="a.txt b.txt"), {"UV_CONSTRAINT": "a.txt b.txt"}, ()),
        (of_pip(client_cert="c.pem"), {"SSL_CLIENT_CERT": "c.pem"}, ()),
        (of_pip(trusted_host="a\nb"), {"UV_INSECURE_HOST": "a b"}, ()),
        (of_pip(proxy="proxy:3128"), {"ALL_PROXY": "http://proxy:3128"}, ()),
        (of_pip(proxy="socks5://proxy"), {"ALL_PROXY": "socks5://proxy"}, ()),
        (of_pip(timeout="15.5"), {"UV_HTTP_TIMEOUT": "15"}, ()),
        (of_pip(retries="9"), {"UV_HTTP_RETRIES": "9"}, ()),
        (of_pip(keyring_provider="subprocess"), {"UV_KEYRING_PROVIDER": "subprocess"}, ()),
        (of_pip(only_binary="a,b"), {}, ("--only-binary", "a", "--only-binary", "b")),
        (of_pip(no_index="true"), {}, ("--no-index",)),
        (of_pip(no_index="0"), {}, ()),
        (of_pip(pre="yes"), {}, ("--prerelease", "allow")),
        (of_pip(no_cache_dir="1"), {}, ("--no-cache",)),
        (of_pip(quiet="1", find_links=""), {}, ()),
    ],
    ids=str,
)
def test_each_setting_has_its_counterpart(
    setting: dict[str, str], environ: dict[str, str], arguments: tuple[str, ...]
) -> None:
    assert uv_settings(setting, {}) == UvSettings(environ, arguments)


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_what_is_set_for_uv_itself_comes_first(name: str) -> None:
    environ = {name: "https://mine/simple", "SSL_CERT_FILE": "mine.pem"}
    assert uv_settings(of_pip(index_url="https://a/simple", cert="a.pem"), environ) == UvSettings({}, ())


@pytest.mark.parametrize(
    "setting", [of_pip(require_hashes="1"), of_pip(keyring_provider="import"), of_pip(something_new="x")]
)
def test_setting_without_a_counterpart_is_named(setting: dict[str, str]) -> None:
    with pytest.raises(UntranslatableError, match=next(iter(setting))):
        uv_settings(setting, {})


UV = """\
Using Python 3.11.7 environment at: .venv
Resolved 137 packages in 1.35s
Downloading duckdb (23.8MiB)
   Building pyspark==4.1.3
   Building headwater @ file:///src
 Downloaded duckdb
      Built pyspark==4.1.3
Prepared 6 packages in 1.71s
Installed 6 packages in 55ms
 + duckdb==2.0.1
warning: something
"""
PIP = """\
Looking in links: /opt/wheels
Collecting duckdb
  Downloading duckdb-2.0.1-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (9 kB)
Downloading duckdb-2.0.1-cp311-cp311-manylinux_2_28_x86_64.whl (24.9 MB)
  Downloading pyspark-4.1.3.tar.gz (434.2 MB)
  Building wheel for pyspark (pyproject.toml): started
  Building wheel for pyspark (pyproject.toml): finished with status 'done'
  Building editable for headwater (pyproject.toml): started
Installing collected packages: duckdb, pyspark, headwater
Successfully installed duckdb-2.0.1 headwater-0.1.0 pyspark-4.1.3
"""


def told(progress_lines: list[str]) -> list[str]:
    return [line.partition("] ")[2] for line in progress_lines]


def test_progress_names_each_package_of_uv_and_what_takes_long() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    for line in UV.splitlines()[:6]:
        progress.line(line)
    progress.silence()
    for line in UV.splitlines()[6:]:
        progress.line(line)
    assert told(lines) == [
        "Resolved 137 packages in 1.35s",
        "downloading duckdb (23.8MiB)",
        "building pyspark==4.1.3",
        "building headwater",
        "downloaded duckdb",
        "still at it: building pyspark==4.1.3, building headwater",
        "built pyspark",
        "Prepared 6 packages in 1.71s",
        "Installed 6 packages in 55ms",
        "warning: something",
    ]


def test_progress_names_each_package_of_pip_and_its_last_line() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    for line in PIP.splitlines():
        progress.line(line)
        if "finished" in line:
            progress.silence()
    assert told(lines) == [
        "downloading duckdb-2.0.1-cp311-cp311-manylinux_2_28_x86_64 (24.9 MB)",
        "downloading pyspark-4.1.3 (434.2 MB)",
        "building pyspark",
        "still at it: Building wheel for pyspark (pyproject.toml): finished with status 'done'",
        "building headwater",
        "installing 3 packages",
        "Successfully installed duckdb-2.0.1 headwater-0.1.0 pyspark-4.1.3",
    ]


def test_silent_installer_is_told_of_and_its_failure_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_SILENT_S", 0.05)
    lines: list[str] = []
    program = "import time; print('Resolving', flush=True); time.sleep(1); raise SystemExit('no network')"
    progress = Progress(lines.append)
    assert not run([sys.executable, "-c", program], os.environ, progress)
    assert "still at it: Resolving" in told(lines)
    assert progress.tail[-1] == "no network"
    assert run([sys.executable, "-c", ""], os.environ, progress)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fakes of uv on PATH and of the environment's Python; both note what they are called with."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("HEADWATER_INSTALLER", raising=False)
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    _fake(tmp_path / "uv", tmp_path / "calls", "uv")
    _fake(tmp_path / "venv" / "bin" / "python", tmp_path / "calls", "python")
    (tmp_path / "venv" / "bin" / "pip").touch()
    return tmp_path


def _fake(path: Path, calls: Path, name: str, status: int = 0, also: str = "") -> None:
    path.write_text(
        f'#!/bin/sh\necho "{name} $* ${{UV_DEFAULT_INDEX:-}}" >> {calls}\n{also}\nexit {status}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _calls(tools: Path) -> list[str]:
    """Without the questions of settings."""
    lines = (tools / "calls").read_text().splitlines()
    return [line.strip() for line in lines if "config list" not in line]


def _install(tools: Path) -> bool:
    return install.Install(tools / "venv", terminal=False)()


def test_uv_of_the_path_installs_with_the_index_of_pip(tools: Path) -> None:
    listing = "echo \"global.index-url='https://a/simple'\""
    _fake(tools / "venv" / "bin" / "python", tools / "calls", "python", also=listing)
    assert _install(tools)
    (call,) = _calls(tools)
    assert call.startswith("uv pip install --python")
    assert (
        "-c constraints.txt -e .[spark,registry,demo,notebooks,dev,docs] --no-progress https://a/simple"
        in call
    )


def test_pip_installs_where_uv_fails(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _fake(tools / "uv", tools / "calls", "uv", status=2, also="echo no such option")
    assert _install(tools)
    uv, upgrade, pip = _calls(tools)
    assert uv.startswith("uv pip install")
    assert upgrade.endswith("--upgrade pip")
    assert pip.endswith("-c constraints.txt -e .[spark,registry,demo,notebooks,dev,docs]")
    said = capsys.readouterr()
    assert "no such option" in said.err
    assert "pip tries" in said.out


def test_pip_installs_where_a_setting_has_no_counterpart(
    tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = "echo \"global.require-hashes='1'\""
    _fake(tools / "venv" / "bin" / "python", tools / "calls", "python", also=listing)
    assert _install(tools)
    assert not [call for call in _calls(tools) if call.startswith("uv")]
    assert "uv has no counterpart of pip's require-hashes" in capsys.readouterr().out


def test_pip_installs_where_no_wheel_of_uv_is_to_be_had(tools: Path) -> None:
    (tools / "uv").unlink()
    assert _install(tools)
    fetched, _, pip = _calls(tools)
    assert "--only-binary uv -c constraints.txt uv" in fetched
    assert pip.endswith("-e .[spark,registry,demo,notebooks,dev,docs]")


def test_wheel_of_uv_installs(tools: Path) -> None:
    (tools / "uv").unlink()
    fetched = tools / "venv" / "bin" / "uv"
    _fake(tools / "ready", tools / "calls", "fetched uv")
    also = f'case "$*" in *--only-binary*) mv {tools}/ready {fetched};; esac'
    monkey = tools / "venv" / "bin" / "python"
    _fake(monkey, tools / "calls", "python", also=f"PATH=/usr/bin:/bin; {also}")
    assert _install(tools)
    assert [call.partition(" pip")[0] for call in _calls(tools)] == ["python -m", "fetched uv"]


def test_variable_leaves_uv_out(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_INSTALLER", "pip")
    assert _install(tools)
    assert not [call for call in _calls(tools) if "uv" in call.split()]


def test_environment_that_was_half_made_is_made_again(tools: Path) -> None:
    (tools / "uv").unlink()
    (tools / "venv" / "bin" / "pip").unlink()
    (tools / "venv" / "bin" / "python").unlink()
    assert install.Install(tools / "venv", terminal=False)._make(None)
    assert (tools / "venv" / "bin" / "pip").exists()


def test_python_without_venv_is_told_with_the_package(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "_can_make_environments", lambda: False)
    (tools / "venv" / "bin" / "python").unlink()
    (tools / "uv").unlink()
    assert not _install(tools)
    assert "-venv (apt install python3." in capsys.readouterr().err


def test_versions_of_the_installers_are_pinned() -> None:
    pins = (install.ROOT / "constraints.txt").read_text()
    assert "\nuv==" in pins
    assert "\npip==" in pins
