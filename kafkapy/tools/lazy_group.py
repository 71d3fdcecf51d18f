"""Groups of commands with suggestions for misspelt names.

`LazyGroup` imports a command's module at the first use of the command, so that help and completion start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from kafkapy.config.suggestions import did_you_mean

__all__ = ["CommandGroup", "LazyGroup"]


WHOLE = 200
"""Longest first sentence in the list of commands, in characters: lines are wrapped, not cut."""


class CommandGroup(click.Group):
    """A group that suggests the closest command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. click.UsageError with the closest commands."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            question = did_you_mean(name, self.list_commands(ctx))
            rest = question[:1].upper() + question[1:] or f"{ctx.command_path} --help lists the commands."
            raise click.UsageError(f"{ctx.command_path} has no command {name}. {rest}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' section of the help.

        Commands come in the order of definition, with whole sentences.
        """
        with formatter.section("Commands"):
            formatter.write_dl(self.command_lines(ctx))

    def command_lines(self, ctx: click.Context) -> list[tuple[str, str]]:
        """(name, line) of each command in the help."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, command.get_short_help_str(WHOLE)) for name, command in found if command is not None]


class LazyGroup(CommandGroup):
    """A group that imports its commands at their first use.

    `places`: {name: ("module:attribute", line in the help)}.
    """

    def __init__(self, *args: Any, places: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return [*self._places]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        place = self._places.get(cmd_name)
        if place is None:
            return None
        module, _, name = place[0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def command_lines(self, ctx: click.Context) -> list[tuple[str, str]]:
        """(name, line) of each command in the help, without an import."""
        return [(name, line) for name, (_, line) in self._places.items()]
