"""`kafkapy-server`: runs one broker until SIGTERM or SIGINT.

Exit codes: 0 after a clean stop; 1 after a wrong configuration or a failed start (with one sentence on stderr), or when
all log directories have failed; 2 for a wrong command line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafkapy.tools.broker_run import run_broker


class Arguments(NamedTuple):
    """The parsed command line."""

    properties: str | None
    overrides: tuple[str, ...]
    logging_file: str | None


def main() -> None:
    """The program `kafkapy-server`. Ends by SystemExit."""
    arguments = plain_arguments(sys.argv[1:])
    if arguments is None:
        from kafkapy.tools.server_command import command

        command(prog_name="kafkapy-server")
    else:
        run_broker(*arguments)


def plain_arguments(given: Sequence[str]) -> Arguments | None:
    """The arguments of an ordinary command line, else None.

    click handles help, the version and mistakes. A normal start does not import click, which saves a twentieth of its
    time.
    """
    properties: str | None = None
    overrides: list[str] = []
    logging_file: str | None = None
    rest = iter(given)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in ("--override", "--logging"):
            if not equals:
                value = next(rest, "-")
            if value.startswith("-"):
                return None
            if name == "--override":
                overrides.append(value)
            else:
                logging_file = value
        elif argument.startswith("-") or properties is not None or Path(argument).is_dir():
            return None
        else:
            properties = argument
    return Arguments(properties, tuple(overrides), logging_file)


if __name__ == "__main__":
    main()
