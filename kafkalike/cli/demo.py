"""`kafkalike demo`: hands over to `kafkalike.demo`."""

from __future__ import annotations

import click

from kafkalike.cli.options import bootstrap_option, version_option


@click.command(epilog="Example: kafkalike demo --keep")
@bootstrap_option("--root")
@click.option("--keep", is_flag=True, help="Keep the demo's data.")
@click.option("--rows", type=click.IntRange(min=1), help="Records to take of the data set; default all.")
@version_option
def demo(*, bootstrap_server: str | None, keep: bool, rows: int | None) -> None:
    """Show on real data what kafkalike does."""
    from kafkalike.demo import run

    click.get_current_context().exit(run(bootstrap_server, keep, rows))
