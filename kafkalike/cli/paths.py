"""`kafkalike job-path`, `conf-path`, `docs-path`: where the parts of the package lie that other programs are given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from kafkalike.cli.conf_folder import conf_folder
from kafkalike.cli.options import version_option

PACKAGE: Final = Path(__file__).parents[1]

JOBS: Final = PACKAGE / "jobs"
CONF: Final = PACKAGE / "conf"
DOCS: Final = PACKAGE / "docs"


def job_names() -> list[str]:
    """Names of the jobs, as `job-path` takes them."""
    return sorted(file.stem for file in JOBS.glob("*.py") if file.stem != "__init__")


@click.command(epilog='Example: spark-submit "$(kafkalike job-path produce)" --help')
@click.argument("job", type=click.Choice(job_names()), metavar="JOB")
@version_option
def job_path(*, job: str) -> None:
    """Print the file of a job, as spark-submit takes it; without a JOB of that name, say which there are."""
    click.echo(JOBS / f"{job}.py")


@click.command(epilog='Example: export SPARK_CONF_DIR="$(kafkalike conf-path)"')
@version_option
def conf_path() -> None:
    """Print the folder with settings for spark-submit, spark-sql and log4j, and an example of server.properties.

    With SPARK_CONF_DIR set to it, Spark finds Delta's jars and kafkalike's settings and prints warnings only. Where
    Spark has fetched the jars before, it is a copy of the packaged folder, below ~/.cache/kafkalike, that names them
    file by file: that saves their resolution at each start.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    click.echo(conf_folder(CONF, Path.home(), Path(cache, "kafkalike")))


@click.command(epilog="Example: less $(kafkalike docs-path guarantees)")
@click.argument("page", default="", metavar="[PAGE]")
@version_option
def docs_path(*, page: str) -> None:
    """Print the folder of the documentation of this version, or the file of one PAGE.

    Links of the pages, of README.md and of CHANGELOG.md beside the folder are relative: they work there.
    """
    file = DOCS / f"{page.removesuffix('.md')}.md" if page else DOCS
    if not file.exists():
        pages = ", ".join(sorted(path.stem for path in DOCS.glob("*.md")))
        raise click.UsageError(f"there is no page {page!r}; there are {pages}")
    click.echo(file.resolve())
