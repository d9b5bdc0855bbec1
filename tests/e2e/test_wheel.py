"""The wheel, as one installs it who has no repository: in an empty folder, in an environment of its own."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from kafkalike import __version__
from kafkalike.cli.paths import job_names
from tests.tools.blocks import PROJECT, blocks
from tests.tools.wheels import BESIDE, built, ran


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source tree."""
    return built(tmp_path_factory.mktemp("dist"))


def test_a_wheel_made_of_the_source_archive_has_the_same_files(wheel: Path, tmp_path: Path) -> None:
    """That is how an installer makes one where it finds no wheel."""
    ran(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, folder=PROJECT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        # Python 3.11 has filters from its 4th release on; later ones warn without.
        with_filter = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(tmp_path / "source", **with_filter)  # type: ignore[arg-type]  # noqa: S202 - our own archive
    (source,) = (tmp_path / "source").iterdir()
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, folder=source)
    (made,) = tmp_path.glob("*.whl")

    with zipfile.ZipFile(made) as ours, zipfile.ZipFile(wheel) as theirs:
        assert set(ours.namelist()) == set(theirs.namelist())


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `bin` of an environment that has the wheel, and its dependencies from this one."""
    place = tmp_path_factory.mktemp("environment")
    ran("uv", "venv", "--quiet", "--offline", "--python", sys.executable, "venv", folder=place, more={"PATH": BESIDE})
    python = place / "venv" / "bin" / "python"
    install = ("uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel)
    ran(*install, folder=place, more={"PATH": BESIDE})
    (site,) = place.glob("venv/lib/python*/site-packages")
    # Files of this kind in the other folder are not read: it does not lead to the repository.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def test_its_metadata_are_complete(wheel: Path) -> None:
    """What a package index shows, and who may use it."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(files.read(name).decode())
        licence = files.read(name.replace("METADATA", "licenses/LICENSE")).decode()

    assert told["Version"] == __version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Author"] == "the kafkalike developers"
    assert "kafka" in told["Keywords"]
    assert {url.split(",")[0] for url in told.get_all("Project-URL", [])} >= {"Documentation", "Changelog", "Source"}
    assert "Apache License" in licence
    required = {re.split(r"[<>=~! ;]", line)[0] for line in told.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert {"obstore", "pyarrow"} <= required
    assert not required & {"delta-spark", "pandas", "pyspark"}


def test_readme_on_a_package_index_links_only_to_pages_and_pictures_of_the_site(wheel: Path) -> None:
    """An index shows the README alone: a relative link would lead nowhere."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(files.read(name).decode())
    (site,) = (url.split(", ")[1] for url in told.get_all("Project-URL", []) if url.startswith("Documentation"))
    text = re.sub(r"```.*?```|`[^`]*`", "", str(told.get_payload()), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)|(?:src|srcset)=\"([^\"]+)", text)
    pages = [link.removeprefix(site) for link in map("".join, links)]
    sources = {page: re.sub(r"\.html$", ".md", page) for page in pages}
    made = {"changelog.md": "../CHANGELOG.md", "decisions/index.md": "decisions/README.md"}
    made |= {source: f"../{source.replace('.md', '.ipynb')}" for source in sources.values() if "notebooks/" in source}
    broken = [page for page, source in sources.items() if not (PROJECT / "docs" / made.get(source, source)).is_file()]

    assert told["Description-Content-Type"] == "text/markdown"
    assert {"guide.html", "changelog.html", "decisions/index.html"} <= sources.keys()
    assert broken == []


def test_every_link_of_its_pages_leads_to_a_file_of_it(wheel: Path) -> None:
    """README, changes and docs lie in the wheel as they lie beside each other in the repository."""
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        pages = {name: files.read(name).decode() for name in names if name.endswith(".md")}
    broken = {
        f"{page}: {target}"
        for page, text in pages.items()
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL))
        if os.path.normpath(Path(page).parent / target) not in names
    }

    assert {"kafkalike/README.md", "kafkalike/CHANGELOG.md", "kafkalike/docs/guarantees.md"} <= pages.keys()
    assert broken == set()


@pytest.mark.timeout(900)
def test_readmes_tour_runs_with_it_as_it_stands(home: Path, tmp_path: Path) -> None:
    """Every block ends well in an empty folder, and they see each other's records."""
    (_, first), (_, second), (_, third) = blocks("Five minutes")
    programs = {name: str(home / "python") for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    python = ran(home / "python", "-c", first, folder=tmp_path)
    spark = ran(home / "python", "-c", second, folder=tmp_path, more=programs)
    shell = ran(
        "bash", "-euc", f"exec 2>&1\n{third}", folder=tmp_path, more={"PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
    )

    assert "{'item': 'tea', 'price': 4}" in python
    assert "orders" in spark
    assert "billing" in spark
    assert "PartitionCount: 4" in shell
    assert "Processed a total of 3 messages" in shell


def test_its_jobs_settings_and_pages_are_found(home: Path, tmp_path: Path) -> None:
    """None of them is the repository's."""
    origin = ran(
        home / "python", "-c", "import kafkalike; print(kafkalike.__file__, kafkalike.__version__)", folder=tmp_path
    )
    every = "import sys; from kafkalike.cli import main; [main(['job-path', job]) for job in sys.argv[1:]]"
    places = ran(home / "python", "-c", every, *job_names(), folder=tmp_path).splitlines()
    conf = ran(home / "python", "-m", "kafkalike", "conf-path", folder=tmp_path).strip()
    page = ran(home / "kafkalike", "docs-path", "guarantees", folder=tmp_path).strip()
    help_of_job = ran(home / "python", "-m", "kafkalike.jobs.export_topic", "--help", folder=tmp_path)

    assert origin.split()[0].startswith(str(home.parent))
    assert origin.split()[1] == __version__
    assert len(places) == len(job_names())
    assert all(place.startswith(str(home.parent)) and Path(place).is_file() for place in [*places, page])
    assert {"spark-defaults.conf", "log4j2.properties"} <= {file.name for file in Path(conf).iterdir()}
    assert "--topic" in help_of_job


@pytest.mark.timeout(300)
def test_its_job_runs_under_spark_submit(home: Path, tmp_path: Path) -> None:
    """As docs/spark.md says it: with the settings that the package brings, and as quiet as a session."""
    (tmp_path / "orders.json").write_text('{"key": "a", "value": "tea"}\n')
    (_, script), _ = blocks("Submit a job", "docs/spark.md")
    path = f"{home}{os.pathsep}{BESIDE}"
    spark = {"PATH": path, "PYSPARK_PYTHON": str(home / "python"), "PYSPARK_DRIVER_PYTHON": str(home / "python")}
    printed = ran("bash", "-euc", script, folder=tmp_path, more=spark)

    assert "records: 1" in printed
    assert ran(home / "kafkalike", "get-offsets", "--bootstrap-server", "./tour", folder=tmp_path) == "orders:0:1\n"
