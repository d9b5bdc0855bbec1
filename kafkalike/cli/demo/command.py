"""`kafkalike demo`: hands over to the tour."""

from __future__ import annotations

from typing import cast

import click

from kafkalike.cli.environment import checked
from kafkalike.cli.options import client_settings, command_config_option, read_properties, version_option


@click.command(epilog="Example: kafkalike demo --keep")
@click.option(
    "--root",
    "--bootstrap-server",
    "root",
    metavar="ROOT",
    help="Where to work: a folder, or a URI with nothing there yet. Default: ./kafkalike-demo.",
)
@command_config_option()
@click.option("--keep", is_flag=True, help="Keep what an earlier demo left, and take the next free name.")
@click.option("--rows", type=click.IntRange(min=1), help="Records to take of the data set; default all.")
@version_option
def demo(*, root: str | None, command_config: str | None, keep: bool, rows: int | None) -> None:
    """Show on real data what kafkalike does."""
    from kafkalike.cli.demo.tour import run

    named = checked(client_settings(read_properties(command_config)))
    click.get_current_context().exit(
        # A file of properties has texts only.
        run(root or cast("str | None", named.bootstrap_servers), keep, rows, storage_options=named.storage_options)
    )
