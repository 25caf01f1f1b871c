"""What every command has in common: its settings, and Ctrl-C."""

import os
import pkgutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headwater as hw
import headwater.cli
from headwater.cli import main
from headwater.stack.launching import interrupted_afterwards


def test_root_config_with_a_mistake_is_refused_by_a_command_that_needs_no_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CONFIG", "")  # put back afterwards: the command sets it
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[jobs]\ntrigger_interval = 2\n")
    for path, told in ((tmp_path / "none.toml", "cannot read"), (wrong, "did you mean")):
        assert main(["--config", str(path), "status", "--home", str(tmp_path)]) == 2
        assert told in capsys.readouterr().err


def test_root_misspelt_verb_of_a_group_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "lst"]) == 2
    assert capsys.readouterr().err == (
        "headwater: No such command 'lst'. Did you mean 'list'? See headwater topics --help\n"
    )


def test_up_with_the_port_of_a_registry_that_is_not_asked_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--registry-port", "8085", "--home", str(tmp_path / "home")]) == 2
    assert "--registry-port is of the registry that --registry starts" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_root_ctrl_c_while_spark_starts_is_obeyed_once_it_has() -> None:
    reached = []
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored where tests run in the background

    def start(presses: int) -> None:
        with interrupted_afterwards() as take:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as PySpark takes it
            take()
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
            reached.append(presses)

    try:
        with pytest.raises(KeyboardInterrupt):
            start(1)
        with pytest.raises(KeyboardInterrupt):
            start(2)
        assert reached == [1], "the second one is obeyed at once"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        start(1)
        assert reached == [1, 1]
        with interrupted_afterwards():
            signal.signal(signal.SIGINT, signal.default_int_handler)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, (
            "what PySpark takes is given back there, too"
        )
    finally:
        signal.signal(signal.SIGINT, before)


def test_root_module_lists_the_names_of_its_api() -> None:
    assert {"job", "topic", "tumbling", "join", "by_offset"} <= set(dir(hw))


def test_every_verb_is_there_without_the_packages_of_spark() -> None:
    """One that starts no session need not wait for them."""
    verbs = sorted(f"headwater.cli.{each.name}" for each in pkgutil.iter_modules(headwater.cli.__path__))
    wanted = ", ".join(each for each in verbs if not each.endswith("__main__"))
    code = f"import sys, {wanted}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
