"""The demo: a small run of it shows everything and adds up, and it removes nothing that is not its own."""

import contextlib
import importlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from kafkalike import KafkaAdminClient
from kafkalike.admin.group_lag import Lags
from kafkalike.cli.app import run as command
from kafkalike.cli.demo import incidents
from kafkalike.cli.demo.screen import MARK, Place, Screen, fresh_folder, fresh_place
from kafkalike.cli.demo.tour import next_commands, run
from kafkalike.cli.environment import Environment
from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.schemas import Registry
from tests.tools.object_servers import S3, in_environment, running

PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def toured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A demo of two thousand flights: its root, and what it printed."""
    text, root = io.StringIO(), str(tmp_path_factory.mktemp("demo") / "flights of 2013")
    code = run(root, rows=2000, console=Console(file=text, width=120))

    assert (code, text.getvalue().count("WRONG")) == (0, 0), text.getvalue()
    return root, text.getvalue()


@pytest.mark.timeout(300)
def test_the_demo_adds_up(toured: tuple[str, str]) -> None:
    """Two thousand flights: every check holds, and the plot is there."""
    root, shown = toured

    assert "1,000 + 1,000 flights are all 2,000" in shown
    assert "Mean delay" in shown
    assert "confluent-kafka sent 500 records to it, and a native consumer read them in order" in shown
    assert "weather__values, with the columns of the weather's Avro schema" in shown
    assert Path(root, "delays.png").read_bytes().startswith(PNG)


def test_the_demo_leaves_a_cluster_with_what_an_operator_looks_for(toured: tuple[str, str]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=toured[0])
    registry = Registry(toured[0])
    behind: Counter[str] = Counter()
    for lag in Lags(connect(toured[0])):
        behind[lag.group_id] += lag.lag.offsets
    (states,) = admin.list_transactions().values()

    assert set(admin.list_topics()) == {
        "airlines", "alerts", "baggage", "boarding", "boarding.dlq", "departures", "flights", "weather",
    }  # fmt: skip
    assert behind == {"delay-report": 0, "gate-display": 39}
    assert registry.get_versions("alerts-value") == [1, 2]
    assert {(entry.transactional_id, str(entry.state)) for entry in states} == {
        ("crew-planner", "Ongoing"),
        ("delay-alerts", "CompleteCommit"),
    }


def test_the_commands_that_the_demo_prints_work_as_they_stand(spark: SparkSession, toured: tuple[str, str]) -> None:
    """In a shell without an activated environment; Spark is not started again for the second one."""
    console, notebooks, shell = (line.strip() for line in toured[1].splitlines()[-3:])
    plain = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    with subprocess.Popen(
        ["bash", "-c", f"exec {console} --port 0"], env=plain, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        server.send_signal(signal.SIGTERM)
    words = [word for word in shlex.split(shell) if not word.startswith("JAVA_HOME=")]
    out = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(out, write_through=True)):
        code = command([*words[1:], "-e", "SELECT count(*) AS scans FROM boarding"], Environment(spark=lambda: spark))

    assert first.startswith(f"Serving {toured[0]} at http://127.0.0.1:")
    assert shutil.which(words[0]) is not None
    assert notebooks.endswith("kafkalike notebooks")
    assert (code, out.getvalue().decode()) == (0, "scans\n60\n")


def test_a_shell_that_finds_no_java_is_told_the_one_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And names that a shell would split are quoted."""
    place = Place(tmp_path / "a demo", str(tmp_path / "a demo"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "/opt/java 17")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setitem(sys.modules, "jupyterlab", importlib.import_module("json"))

    console, notebooks, shell = next_commands(place)

    assert console == "kafkalike ui --bootstrap-server 'a demo'"
    assert notebooks == "JAVA_HOME='/opt/java 17' kafkalike notebooks"
    assert shell == "JAVA_HOME='/opt/java 17' kafkalike sql --bootstrap-server 'a demo'"


def test_demo_without_jupyterlab_tells_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment of the demo, by pip or else by uv; the rest of the line is the same."""
    place = Place(tmp_path, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    _, by_pip, _ = next_commands(place)
    monkeypatch.setitem(sys.modules, "pip", None)
    _, by_uv, _ = next_commands(place)
    name = Path(sys.executable).name

    assert by_pip == f"{name} -m pip install --quiet jupyterlab && kafkalike notebooks"
    assert by_uv == f"uv pip install --python {name} --quiet jupyterlab && kafkalike notebooks"


@pytest.mark.parametrize("client", incidents.PRODUCERS)
def test_each_foreign_client_produces_in_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    if not incidents.is_installed(client):
        pytest.skip(f"no {client} here")
    monkeypatch.setattr(incidents, "PRODUCERS", {client: incidents.PRODUCERS[client]})
    text = io.StringIO()
    screen = Screen(Console(file=text, width=120), SYSTEM_CLOCK, steps=1)

    incidents.foreign_client(Place(tmp_path, str(tmp_path)), screen)

    assert screen.failures == []
    assert f"{client} sent 500 records to it" in text.getvalue()


def test_demo_without_a_foreign_client_tells_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "PRODUCERS", {})
    text = io.StringIO()

    incidents.foreign_client(
        Place(tmp_path, str(tmp_path)), Screen(Console(file=text, width=200), SYSTEM_CLOCK, steps=1)
    )

    (line,) = text.getvalue().splitlines()
    assert "pip install 'kafkalike[gateway]' confluent-kafka" in line


def test_a_check_that_does_not_hold_is_a_failure() -> None:
    """The screen shows both values, and keeps them for the exit code."""
    text = io.StringIO()
    screen = Screen(Console(file=text, width=120), SYSTEM_CLOCK, steps=1)

    screen.check("a sum", 2, 2)
    screen.check("another", 3, 4)

    assert screen.failures == ["another: 3, expected 4"]
    assert "WRONG" in text.getvalue()


def test_a_demo_removes_what_an_earlier_one_made(tmp_path: Path) -> None:
    """Its mark in a folder says that the folder may go."""
    folder = fresh_folder(str(tmp_path / "demo"), keep=False)
    (folder / "old").touch()

    again = fresh_folder(str(folder), keep=False)

    assert (again, [path.name for path in again.iterdir()]) == (folder, [MARK])


def test_a_demo_keeps_what_an_earlier_one_made_when_asked_to(tmp_path: Path) -> None:
    """It takes the next free name instead."""
    names = [fresh_folder(str(tmp_path / "demo"), keep=True).name for _ in range(3)]

    assert names == ["demo", "demo-2", "demo-3"]


def test_a_demo_never_removes_anything_else(tmp_path: Path) -> None:
    """A folder with other things in it, a file, a link and a URI are refused and left alone."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / MARK).touch()
    (tmp_path / "link").symlink_to(tmp_path / "demo")

    for name in ("mine", "mine/thesis.txt", "link"):
        with pytest.raises(IllegalArgumentError, match="not made by a demo"):
            fresh_folder(str(tmp_path / name), keep=False)
    with pytest.raises(IllegalArgumentError, match="a folder of this machine"):
        fresh_folder("s3a://bucket/log", keep=False)

    assert (tmp_path / "mine" / "thesis.txt").exists()
    assert (tmp_path / "demo" / MARK).exists()


@pytest.mark.objects
@pytest.mark.slow
def test_a_demo_never_takes_a_root_in_an_object_store_that_has_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not tell an earlier demo's from anybody's. What is local lies in the folder of a demo."""
    monkeypatch.chdir(tmp_path)
    with running(S3, tmp_path / "server") as server:
        for name, value in in_environment(server).items():
            monkeypatch.setenv(name, value)
        root = server.new_root()

        taken = fresh_place(root, server.options, keep=False)
        connect(root).create_topic("t", 1, {})
        with pytest.raises(IllegalArgumentError, match="has topics"):
            fresh_place(root, keep=False)

    assert taken == Place(tmp_path / "kafkalike-demo", root, server.options)
    assert server.options["secret_access_key"] not in repr(taken)


@pytest.mark.objects
@pytest.mark.slow
def test_a_demo_takes_storage_options_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As all other commands do, with nothing in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "client.properties"
    with running(S3, tmp_path / "server") as server:
        root = server.new_root()
        connect(root, server.options).create_topic("t", 1, {})
        file.write_text("".join(f"storage.options.{name}={value}\n" for name, value in server.options.items()))

        code = command(["demo", "--root", root, "--command-config", str(file)])

    assert code == 1
    assert "has topics; the demo removes nothing" in capsys.readouterr().err
