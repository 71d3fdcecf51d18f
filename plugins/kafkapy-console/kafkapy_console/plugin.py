"""What kafkapy gets: the command `kafkapy console`, and a console inside a broker (`console.listeners`).

Loaded by brokers too, so it imports the web framework only where a console starts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkapy.config.config_def import ConfigKey, Importance
from kafkapy.errors import KafkaError
from kafkapy.plugins import hookimpl
from kafkapy.types import ConfigType

if TYPE_CHECKING:
    from click import Command

    from kafkapy_console.server import ConsoleThread

LISTENERS = "console.listeners"
FILE = "console.config.file"
READ_ONLY = "console.read.only"

logger = logging.getLogger("kafkapy.console")
_running: dict[int, ConsoleThread] = {}
"""The console of each broker of this process, by the broker's id()."""


@hookimpl
def register_commands() -> Iterable[Command]:
    """The command."""
    from kafkapy_console.cli import main

    return [main]


@hookimpl
def register_config_keys() -> Iterable[ConfigKey]:
    """The keys of a console inside a broker."""
    listeners = "Addresses (host:port) of the web console inside the broker; empty: no console."
    file = "TOML file with the console's settings: logins, roles, masks, schema registry."
    read_only = "Whether the console refuses each action that changes something."
    return [
        ConfigKey(LISTENERS, ConfigType.LIST, [], None, Importance.MEDIUM, listeners),
        ConfigKey(FILE, ConfigType.STRING, "", None, Importance.LOW, file),
        ConfigKey(READ_ONLY, ConfigType.BOOLEAN, False, None, Importance.LOW, read_only),
    ]


@hookimpl
def broker_started(broker: Any) -> None:
    """Starts the console on a thread of its own."""
    listeners = list(broker.config[LISTENERS])
    if not listeners:
        return
    from kafkapy_console.server import ConsoleThread, broker_settings

    try:
        console = ConsoleThread(broker_settings(broker), listeners)
        console.start()
    except (KafkaError, OSError, ValueError) as error:
        logger.error("Console does not start: %s", error)
        return
    _running[id(broker)] = console


@hookimpl
def broker_stopping(broker: Any) -> None:
    """Ends the console; its readers get the end of their streams."""
    console = _running.pop(id(broker), None)
    if console is not None:
        console.stop()
