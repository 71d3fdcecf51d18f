"""`kafkapy completion`: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

PROGRAM = "kafkapy"
HOW = {
    "bash": 'eval "$(kafkapy completion bash)"    in ~/.bashrc',
    "zsh": 'eval "$(kafkapy completion zsh)"     in ~/.zshrc',
    "fish": "kafkapy completion fish > ~/.config/fish/completions/kafkapy.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(sorted(HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    The script completes commands, options, and the names of topics and groups. The names come from the cluster of
    --bootstrap-server on the line, or of $KAFKAPY_BOOTSTRAP_SERVER.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, PROGRAM, "_KAFKAPY_COMPLETE").source())
