"""`kafkapy`: the command-line tools, one sub-command each.

The group imports a command's module at the first use of the command, so that help and completion start fast. Plugins
may add commands (`register_commands`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from kafkapy.tools.lazy_group import LazyGroup
from kafkapy.tools.terminal import fitted
from kafkapy.version import __version__

__all__ = ["main"]

COMMANDS: Mapping[str, tuple[str, str]] = {
    "topics": ("kafkapy.tools.topics:topics", "List, describe, create, alter, delete and reassign topics."),
    "configs": ("kafkapy.tools.configs:configs", "Describe, set and delete configurations."),
    "client-metrics": (
        "kafkapy.tools.client_metrics:client_metrics",
        "List, describe, change and delete subscriptions to clients' metrics.",
    ),
    "groups": ("kafkapy.tools.groups:groups", "List, describe, reset and delete groups."),
    "share": ("kafkapy.tools.share:share", "List, describe, reset and delete share groups."),
    "transactions": ("kafkapy.tools.transactions:transactions", "List, describe, find and abort transactions."),
    "features": ("kafkapy.tools.features:features", "Show and change the levels of the cluster's features."),
    "cluster": ("kafkapy.tools.cluster:cluster", "Show and operate the cluster: health, leaders, drains, brokers."),
    "acls": ("kafkapy.tools.acls:acls", "List, add and remove access control lists."),
    "users": ("kafkapy.tools.users:users", "List, add, change and delete SCRAM users."),
    "quotas": ("kafkapy.tools.quotas:quotas", "List, describe, set and remove quotas of clients."),
    "tokens": ("kafkapy.tools.tokens:tokens", "Create, list, renew and expire delegation tokens."),
    "doctor": ("kafkapy.tools.doctor:doctor", "Check a broker's machine and configuration, and advise changes."),
    "storage": ("kafkapy.tools.storage:storage", "Format log directories, and show their identity."),
    "certs": ("kafkapy.tools.certs:certs", "Create, renew and show certificates for development."),
    "produce": ("kafkapy.tools.produce:produce", "Send records from stdin or files."),
    "consume": ("kafkapy.tools.consume:consume", "Print records."),
    "log-dirs": ("kafkapy.tools.log_dirs:log_dirs", "Show log directories, and move partitions between them."),
    "dump-log": ("kafkapy.tools.dump_log:dump_log", "Print log segments, indexes, snapshots and checkpoints."),
    "profile": ("kafkapy.tools.profile:profile", "Create, use, show and delete profiles of clusters."),
    "completion": ("kafkapy.tools.completion:completion", "Print the completion script of a shell."),
}
"""Name: (location of the command, its line in the help)."""


PREFIX = "Error: "
"""The text that click writes before the sentence of an error."""


@contextmanager
def _errors_between_words() -> Iterator[None]:
    """The sentence of an error is broken into lines as wide as the terminal on stderr, between words."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.ClickException as error:
        sentence = fitted(PREFIX + error.format_message(), sys.stderr).removeprefix(PREFIX)
        error.format_message = lambda: sentence  # type: ignore[method-assign]
        raise


class _GroupWithPlugins(LazyGroup):
    """A group that asks plugins only for unknown names."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """The options before the command's name."""
        with _errors_between_words():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """The command, its own options included."""
        with _errors_between_words():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_listed_plugin_commands())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _plugin_commands().get(cmd_name)

    def command_lines(self, ctx: click.Context) -> list[tuple[str, str]]:
        """The lines of the help; commands of plugins come last."""
        plugins = _listed_plugin_commands()
        return [*super().command_lines(ctx), *((name, plugins[name].get_short_help_str()) for name in sorted(plugins))]


def _plugin_commands() -> Mapping[str, click.Command]:
    """Commands of installed plugins.

    Without plugins, this does not import the plugin manager.
    """
    from kafkapy.errors import PluginError
    from kafkapy.installed_plugins import installed_plugins

    try:
        if not installed_plugins():
            return {}
        from kafkapy.plugins import PluginManager

        return PluginManager.load(builtins=()).commands
    except PluginError as error:
        raise click.ClickException(str(error)) from None


def _listed_plugin_commands() -> Mapping[str, click.Command]:
    """Commands of plugins, for lists.

    A plugin that does not load is a warning on stderr and hides no other command.
    """
    try:
        return _plugin_commands()
    except click.ClickException as error:
        click.echo(f"Warning: {error.message}", err=True)
        return {}


@click.group(
    cls=_GroupWithPlugins,
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kafkapy")
def main() -> None:
    """Tools for kafkapy and Apache Kafka."""


if __name__ == "__main__":
    main()
