"""What surrounds each command: where the log goes, what a shell completes, which signal ends it."""

import json
import logging
import os
import signal
import sys
import zipfile
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from kafkalike.cli.app import JsonLogFormatter, app, hoisted, run
from kafkalike.cli.environment import Interrupt, Terminated, termination
from kafkalike.cli.paths import CONF, DOCS, JOBS, NOTEBOOKS
from kafkalike.spark.jvm.jars import IVY, JARS


def test_a_line_of_the_log_is_an_object() -> None:
    """With what went wrong, where something did."""
    error = ValueError("nein")
    record = logging.LogRecord(
        "kafkalike.log", logging.WARNING, __file__, 1, "late by %d", (3,), (ValueError, error, None)
    )
    record.created = 1.5

    told = json.loads(JsonLogFormatter().format(record))

    assert (told["time"], told["level"], told["logger"]) == (
        "1970-01-01T00:00:01.500+00:00",
        "WARNING",
        "kafkalike.log",
    )
    assert told["message"] == "late by 3"
    assert told["process"] == os.getpid()
    assert told["error"].endswith("ValueError: nein")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["topics", "--log-level", "info"], ["--log-level", "info", "topics"]),
        (["topics", "--log-format=json", "--list"], ["--log-format=json", "topics", "--list"]),
        (["topics", "--log-level"], ["--log-level", "topics"]),
        (["--debug", "topics"], ["--debug", "topics"]),
    ],
)
def test_options_of_the_log_may_stand_behind_the_command(given: list[str], taken: list[str]) -> None:
    assert hoisted(given) == taken


@pytest.mark.parametrize(
    ("words", "incomplete", "completed"),
    [
        ([], "cons", ["console-consumer", "console-producer", "consumer-groups"]),
        (["topics"], "--desc", ["--describe"]),
        (["completion"], "", ["bash", "zsh", "fish"]),
        (["dlq"], "re", ["replay"]),
    ],
)
def test_a_shell_completes_commands_options_and_values(words: list[str], incomplete: str, completed: list[str]) -> None:
    """Names of commands come from a table: none is imported for them."""
    found = BashComplete(app, {}, "kafkalike", "_X").get_completions(words, incomplete)

    assert sorted(item.value for item in found) == sorted(completed)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_KAFKALIKE_COMPLETE" in capsys.readouterr().out


def test_a_shells_question_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As the script for bash asks it."""
    monkeypatch.setenv("_KAFKALIKE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kafkalike maint")
    monkeypatch.setenv("COMP_CWORD", "1")

    assert run([]) == 0
    assert capsys.readouterr().out == "plain,maintain\n"


def test_sigterm_is_an_interrupt_of_its_own() -> None:
    """So whatever ends well on Ctrl-C ends well on it; the handler from before comes back."""
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(Terminated), termination():
        signal.raise_signal(signal.SIGTERM)

    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_loop_hears_of_the_first_signal_and_the_second_one_raises(
    number: signal.Signals, error: type[BaseException]
) -> None:
    """What it raises afterwards is what the signal would have raised."""
    with Interrupt() as interrupt:
        signal.raise_signal(number)
        assert interrupt.is_requested
        with pytest.raises(error):
            signal.raise_signal(number)

    with pytest.raises(error):
        interrupt.again()


def test_no_signal_raises_nothing() -> None:
    with Interrupt() as interrupt:
        pass

    interrupt.again()
    assert not interrupt.is_requested


@pytest.mark.parametrize(
    ("args", "place"),
    [
        (["job-path", "produce"], JOBS / "produce.py"),
        (["docs-path"], DOCS.resolve()),
        (["docs-path", "sql.md"], DOCS.resolve() / "sql.md"),
        (["docs-path", "settings"], DOCS.resolve() / "reference" / "settings.md"),
    ],
)
def test_parts_of_the_package_are_named(args: list[str], place: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 0
    assert capsys.readouterr().out == f"{place}\n"


def test_settings_name_the_jars_once_spark_has_fetched_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else Spark is told to fetch them; and so it is where no folder can be made."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = tmp_path / IVY / "jars"
    jars.mkdir(parents=True)

    def named() -> Path:
        assert run(["conf-path"]) == 0
        return Path(capsys.readouterr().out.rstrip("\n"))

    assert named() == CONF
    for name in JARS:
        zipfile.ZipFile(jars / name, "w").close()
    made = named()
    settings = (made / "spark-defaults.conf").read_text()
    assert made.parent == tmp_path / "cache" / "kafkalike"
    assert "spark.jars.packages" not in settings
    assert f"spark.jars {jars / JARS[0]},{jars / JARS[1]}," in settings
    packaged = (CONF / "spark-defaults.conf").read_text().splitlines()
    assert len(set(packaged) - set(settings.splitlines())) == 1
    assert {file.name for file in made.iterdir()} == {file.name for file in CONF.iterdir() if file.is_file()}
    assert named() == made
    assert [folder.name for folder in made.parent.iterdir()] == [made.name]
    monkeypatch.setenv("XDG_CACHE_HOME", str(jars / JARS[0]))
    assert named() == CONF


def test_notebooks_are_copied_and_opened_beside_what_is_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook that somebody changed stays."""
    started: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jupyterlab", sys)
    monkeypatch.setattr(os, "execv", lambda _, command: started.append(command))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "05_lag.ipynb").write_text("changed")

    codes = [run(["notebooks"]), run(["notebooks", "mine", "--no-browser", "--port", "0"])]

    assert codes == [0, 0]
    assert started == [
        [sys.executable, "-m", "jupyterlab", "kafkalike-notebooks"],
        [sys.executable, "-m", "jupyterlab", "mine", "--no-browser", "--ServerApp.port=0"],
    ]
    copied = {path.name: path.read_text() for path in Path("kafkalike-notebooks").iterdir()}
    assert copied == {path.name: path.read_text() for path in NOTEBOOKS.glob("*.ipynb")}
    assert {path.name: path.read_text() for path in Path("mine").iterdir()} == copied | {"05_lag.ipynb": "changed"}


def test_notebooks_without_jupyterlab_name_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jupyterlab", None)

    assert run(["notebooks"]) == 1
    assert capsys.readouterr().err == "Error: notebooks need jupyterlab: pip install 'kafkalike[notebooks]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_is_not_there_names_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs and pages."""
    assert [run(["job-path", "nothing"]), run(["docs-path", "nothing"])] == [2, 2]
    said = capsys.readouterr().err
    assert "copy_topic" in said
    assert "guarantees" in said
