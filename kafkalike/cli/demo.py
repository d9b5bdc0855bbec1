"""`kafkalike demo`: hands over to `kafkalike.demo`."""

from __future__ import annotations

import click

from kafkalike.cli.options import version_option


@click.command(epilog="Example: kafkalike demo --keep")
@click.option(
    "--root",
    "--bootstrap-server",
    "root",
    metavar="ROOT",
    help="Where to work: a folder, or a URI with nothing there yet, whose storage options are in the environment. "
    "Default: ./kafkalike-demo.",
)
@click.option("--keep", is_flag=True, help="Keep what an earlier demo left, and take the next free name.")
@click.option("--rows", type=click.IntRange(min=1), help="Records to take of the data set; default all.")
@version_option
def demo(*, root: str | None, keep: bool, rows: int | None) -> None:
    """Show on real data what kafkalike does."""
    from kafkalike.demo import run

    click.get_current_context().exit(run(root, keep, rows))
