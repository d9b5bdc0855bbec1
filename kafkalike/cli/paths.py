"""`kafkalike job-path`, `conf-path`, `docs-path`, `notebooks` and `sql-views`: paths and SQL for other programs.

With `spark.jars.packages` in spark-defaults.conf Spark runs Ivy at each start and copies 33 jars, most of which it
includes. After the first fetch, ten files are enough: `conf-path` prints a folder whose settings name them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import cluster_options, version_option
from kafkalike.errors.optional_imports import require_module

PACKAGE: Final = Path(__file__).parents[1]

JOBS: Final = PACKAGE / "cli" / "jobs"
CONF: Final = PACKAGE / "conf"
DOCS: Final = PACKAGE / "docs"
NOTEBOOKS: Final = PACKAGE / "notebooks"

SHARED: Final = frozenset({"__init__", "job", "kafka_jars", "record_options"})
"""Files in the folder of jobs that are not jobs."""


def job_names() -> list[str]:
    """Return the names of the jobs."""
    return sorted(file.stem for file in JOBS.glob("*.py") if file.stem not in SHARED)


@click.command(epilog='Example: spark-submit "$(kafkalike job-path produce)" --help')
@click.argument("job", type=click.Choice(job_names()), metavar="JOB")
@version_option
def job_path(*, job: str) -> None:
    """Print the file of a job for spark-submit. The error for an unknown JOB lists all jobs."""
    click.echo(JOBS / f"{job}.py")


@click.command(epilog='Example: export SPARK_CONF_DIR="$(kafkalike conf-path)"')
@version_option
def conf_path() -> None:
    """Print the folder with settings for spark-submit, spark-sql and log4j, and an example of server.properties.

    With SPARK_CONF_DIR set to this folder, Spark finds Delta's jars and kafkalike's settings, and prints warnings only.
    If Spark has fetched the jars before, the folder is a copy of the packaged one, below ~/.cache/kafkalike, that names
    the jars file by file. That saves their resolution at each start.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    click.echo(conf_folder(CONF, Path.home(), Path(cache, "kafkalike")))


@click.command(epilog="Example: less $(kafkalike docs-path guarantees)")
@click.argument("page", default="", metavar="[PAGE]")
@version_option
def docs_path(*, page: str) -> None:
    """Print the folder of the documentation of this version, or the file of one PAGE.

    Links of the pages, and of README.md and CHANGELOG.md beside the folder, are relative and work there.
    """
    if not page:
        click.echo(DOCS.resolve())
        return
    pages = {path.stem: path for folder in (DOCS / "reference", DOCS) for path in folder.glob("*.md")}
    file = pages.get(page.removesuffix(".md"))
    if file is None:
        raise click.UsageError(f"unknown page {page!r}; the pages are {', '.join(sorted(pages))}")
    click.echo(file.resolve())


@click.command(epilog="Example: kafkalike notebooks my-notebooks --no-browser")
@click.argument("folder", default="kafkalike-notebooks", type=click.Path(file_okay=False, path_type=Path))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of JupyterLab; 0: a free one. Default: JupyterLab's.")
@version_option
def notebooks(*, folder: Path, no_browser: bool, port: int | None) -> None:
    """Copy the notebooks to FOLDER (default: kafkalike-notebooks) and open them in JupyterLab.

    Files that are in FOLDER stay as they are. Each notebook makes a cluster of its own in a temporary folder; Spark
    needs Java 17 or newer. JupyterLab listens on the loopback and prints an address with a token; Ctrl-C ends it.
    """
    require_module("jupyterlab", "notebooks")
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not (folder / notebook.name).exists():
            shutil.copyfile(notebook, folder / notebook.name)
    command = [sys.executable, "-m", "jupyterlab", str(folder)]
    command += ["--no-browser"] if no_browser else []
    command += [] if port is None else [f"--ServerApp.port={port}"]
    # JupyterLab refuses to run as root, the only user of many containers, unless it is told so.
    command += ["--allow-root"] if os.geteuid() == 0 else []
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - without a shell, on purpose


_PACKAGES: Final = "spark.jars.packages"
_DEFAULTS: Final = "spark-defaults.conf"


def conf_folder(packaged: Path, home: Path, cache: Path) -> Path:
    """Return the folder of settings for spark-submit.

    Args:
        packaged: folder in the package.
        home: parent of Spark's Ivy folder.
        cache: folder for the copy.

    Returns:
        A copy of the packaged folder with `spark.jars`, or with Delta's package for another Spark than the packaged
        settings name; the packaged folder if there is nothing to change or no copy can be made. The copy is named after
        its content and appears complete.
    """
    # This imports PySpark, if it is there; the other commands do not need it.
    from kafkalike.spark.jvm.jars import delta_jar_conf

    found = delta_jar_conf(home)
    name = "spark.jars" if "spark.jars" in found else _PACKAGES
    jars, lines = found[name], (packaged / _DEFAULTS).read_text().splitlines()
    # The format of the file: a blank ends a name, and a line end its value.
    if any(sign in jars for sign in "\n\r\\") or any(line.split() == [name, jars] for line in lines):
        return packaged
    text = "".join(f"{name} {jars}\n" if line.startswith(_PACKAGES) else f"{line}\n" for line in lines)
    digest = hashlib.sha256(text.encode())
    others = sorted(file for file in packaged.iterdir() if file.is_file() and file.name != _DEFAULTS)
    for file in others:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    made = cache / f"conf-{digest.hexdigest()[:16]}"
    try:
        if not made.is_dir():
            _make(made, text, others)
    except OSError:
        return packaged
    return made


def _make(folder: Path, text: str, others: list[Path]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="conf-", suffix=".draft", dir=folder.parent))
    try:
        (draft / _DEFAULTS).write_text(text)
        for file in others:
            shutil.copyfile(file, draft / file.name)
        draft.chmod(0o755)
        # Another process may have made the same folder.
        with contextlib.suppress(OSError):
            os.rename(draft, folder)  # noqa: PTH104 - unlike Path.replace, fails if the folder exists
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if not folder.is_dir():
        raise FileNotFoundError(folder)


@click.command(
    epilog="Example: kafkalike sql-views > views.sql && "
    "SPARK_CONF_DIR=$(kafkalike conf-path) spark-sql -i views.sql -e 'SELECT * FROM kafkalike_lag'"
)
@click.option(
    "--tables", metavar="DATABASE", help="Print external tables of this database instead, or of CATALOG.DATABASE."
)
@cluster_options
@version_option
@pass_environment
def sql_views(
    environment: Environment, /, *, tables: str | None, bootstrap_server: str | None, command_config: str | None
) -> None:
    """Print SQL that creates a view of every topic, and the live tables kafkalike_topics, kafkalike_lag and others.

    Views are temporary, and existing ones are not replaced. Print the SQL again after topics are created. In a
    notebook, use kafkalike.spark.register_sql instead.
    """
    from kafkalike.spark.sql.catalog_tables import table_statements
    from kafkalike.spark.sql.topic_views import view_statements

    cluster = environment.cluster_of(bootstrap_server, command_config)
    for statement in view_statements(cluster) if tables is None else table_statements(cluster, tables):
        click.echo(f"{statement};")
