"""Suggesting: a group of commands that, asked for one it has not, names the nearest."""

from __future__ import annotations

from typing import Any

import click

from kafkalike.model.config.properties import nearest


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command says which one may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, and with a better message.

        Raises:
            click.UsageError: there is no such command.
        """
        wanted = args[0]
        if not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            raise click.UsageError(f"No such command {wanted!r}{nearest(wanted, self.list_commands(ctx))}", ctx)
        found: tuple[str | None, click.Command | None, list[Any]] = super().resolve_command(ctx, args)
        return found
