"""Passwords for commands, from a file, the environment, or a prompt.

They are no arguments, because all users of the machine see a process's command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkapy.errors import KafkaError

__all__ = ["password_of", "password_options"]

F = TypeVar("F", bound=Callable[..., Any])
STDIN = "-"


def password_options(command: F) -> F:
    """Add the options that name the place of a password.

    The command passes them to `password_of`.
    """
    command = click.option("--password-env", metavar="NAME", help="Read the password from this variable.")(command)
    return click.option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of this file; - is stdin. The default is a prompt.",
    )(command)


def password_of(file: str | None, variable: str | None, prompt: str) -> str:
    """The password from a file, a variable or a prompt.

    KafkaError for an empty or missing one.
    """
    if file is not None and variable is not None:
        raise click.UsageError("Give --password-file or --password-env, not both.")
    if file is not None:
        password, place = _first_line(file), f"The file {file}" if file != STDIN else "Stdin"
    elif variable is not None:
        password, place = os.environ.get(variable, ""), f"The variable {variable}"
    elif sys.stdin.isatty():
        password = str(click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True))
        place = "The prompt"
    else:
        raise click.UsageError("There is no terminal to ask for a password: give --password-file or --password-env.")
    if not password:
        raise KafkaError(f"{place} has no password.")
    return password


def _first_line(file: str) -> str:
    if file == STDIN:
        return sys.stdin.readline().rstrip("\r\n")
    try:
        with Path(file).open(encoding="utf-8") as stream:
            return stream.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise KafkaError(f"The password file {file} cannot be read: {reason}.") from None
