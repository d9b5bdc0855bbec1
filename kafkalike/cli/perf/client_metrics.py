"""Client metrics: a client's nested metrics in, Kafka's table of names and values out."""

from __future__ import annotations

from collections.abc import Mapping

import click


def print_metrics(metrics: Mapping[str, Mapping[str, object]]) -> None:
    """Print `{group: {name: value}}` as lines `group:name : value`, names in one column."""
    lines = {f"{group}:{name}": value for group, names in metrics.items() for name, value in names.items()}
    width = max(map(len, lines), default=0)
    click.echo(f"\n{'Metric Name':<{width}} Value")
    for name, value in sorted(lines.items()):
        click.echo(f"{name:<{width}} : {f'{value:.3f}' if isinstance(value, float) else value}")
