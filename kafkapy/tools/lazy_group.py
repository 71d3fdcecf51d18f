"""Groups of commands whose modules are imported when a command is used, so that help and completion start fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Knows its commands by name. `places`: {name: ("module:attribute", line in the help)}."""

    def __init__(self, *args: Any, places: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return [*self._places]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports it."""
        place = self._places.get(cmd_name)
        if place is None:
            return None
        module, _, name = place[0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def command_lines(self) -> list[tuple[str, str]]:
        """(name, line) of each command in the help, without an import."""
        return [(name, line) for name, (_, line) in self._places.items()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands' section of the help."""
        with formatter.section("Commands"):
            formatter.write_dl(self.command_lines())
