"""Passwords for commands, from a file, the environment, or a prompt.

They are no arguments, because all users of the machine see a process's command line. A secret that stands there all the
same works, with a warning.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkapy.errors import KafkaError

__all__ = ["client_keys", "password_of", "password_options", "warn_of_secrets"]

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


def password_of(password_file: str | None, password_env: str | None, prompt: str) -> str:
    """The password from a file, a variable or a prompt.

    KafkaError for an empty or missing one.
    """
    file, variable = password_file, password_env
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


def client_keys(given: tuple[str, ...], option: str = "-X") -> dict[str, str]:
    """{key: value} of the key=value texts of an option for clients.

    A key of a secret without a value asks for it. Secrets with a value are warned about. click.UsageError.
    """
    from kafkapy.config.clients import shown
    from kafkapy.config.config_def import HIDDEN

    found: dict[str, str] = {}
    visible: list[str] = []
    for text in given:
        key, equals, value = text.partition("=")
        key = key.strip()
        secret = bool(key) and shown(key, "") == HIDDEN
        if not key or not (equals or secret):
            raise click.UsageError(f"{text!r} is not KEY=VALUE.")
        if not equals:
            value = _asked(key, option)
        elif secret and value and "${" not in value:
            visible.append(key)
        found[key] = value
    if visible:
        first = visible[0]
        variable = "KAFKAPY_" + first.replace(".", "_").upper()
        remedy = f"{option} {first} without a value (it asks)"
        if option == "-X":
            remedy += f", the variable {variable}, --config FILE or a profile"
        warn_of_secrets(visible, remedy, "kafkapy")
    return found


def warn_of_secrets(names: Iterable[str], remedy: str, program: str) -> None:
    """Write one sentence to stderr: these secrets stand in the command line."""
    listed = ", ".join(names)
    print(
        f"{program}: warning: all users of this machine can read {listed} in the command line; use {remedy}",
        file=sys.stderr,
    )


def _asked(key: str, option: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(f"There is no terminal to ask for {key}, and {option} {key} has no value.")
    return str(click.prompt(key, hide_input=True, err=True))


def _first_line(file: str) -> str:
    if file == STDIN:
        return sys.stdin.readline().rstrip("\r\n")
    try:
        with Path(file).open(encoding="utf-8") as stream:
            return stream.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise KafkaError(f"The password file {file} cannot be read: {reason}.") from None
