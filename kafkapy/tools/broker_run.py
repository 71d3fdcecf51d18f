"""Runs a broker in this process, from configuration to exit code.

See kafkapy/tools/server.py.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from kafkapy.config.properties import Properties, load_properties
from kafkapy.config.single_node import QUICK_START
from kafkapy.errors import KafkaError
from kafkapy.tools.log_setup import configure_logging
from kafkapy.tools.supervisor import READY, notify

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.plugins import PluginManager
    from kafkapy.security.add_scram import AddedUser

GARBAGE_LOOK: Final = 10_000
"""So many objects more than before are a reason to look for those that only know each other."""


def run_broker(
    properties: str | None,
    overrides: Sequence[str],
    logging_file: str | None,
    *,
    rebuild_metadata: bool = False,
    add_scram: Sequence[str] = (),
) -> NoReturn:
    """Run a broker until it is told to stop. SystemExit with the exit code."""
    try:
        configure_logging(logging_file)
        raw = read_properties(properties, overrides)
        # Nearly everything that a start makes stays: looking it through for garbage again and again is lost time.
        gc.disable()
        # The broker is imported late, so that --help and a wrong file are answered at once.
        from kafkapy.broker.server import KafkaServer

        config, plugins = broker_config(raw)
        added_users = _added_users(add_scram) if add_scram else ()
        _warn_of_secrets(config, overrides, add_scram)
        server = KafkaServer(config, plugins, rebuild_metadata=rebuild_metadata, added_users=added_users)
        code = server.run(_started)
    except KafkaError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    sys.exit(code)


def _added_users(texts: Sequence[str]) -> Sequence[AddedUser]:
    from kafkapy.security.add_scram import parse_add_scram

    return [parse_add_scram(text) for text in texts]


def _warn_of_secrets(config: BrokerConfig, overrides: Sequence[str], add_scram: Sequence[str]) -> None:
    """Warn of secrets in the command line: all users of the machine can read it."""
    given = [(name.strip(), value.strip()) for name, _, value in (text.partition("=") for text in overrides)]
    visible = [name for name, value in given if _is_secret(config, name) and value and "${" not in value]
    shown = add_scram and any(map(_shows_password, add_scram))
    if not visible and not shown:
        return
    from kafkapy.tools.passwords import warn_of_secrets

    if visible:
        warn_of_secrets(visible, "the properties file, or ${env:NAME} (config.providers)", "kafkapy-server")
    if shown:
        warn_of_secrets(["the password of --add-scram"], "password-file or password-env", "kafkapy-server")


def _is_secret(config: BrokerConfig, name: str) -> bool:
    key = config.key_for(name)
    return key is not None and key.sensitive


def _shows_password(text: str) -> bool:
    from kafkapy.security.add_scram import shows_password

    return shows_password(text)


def read_properties(path: str | None, overrides: Sequence[str]) -> Properties:
    """The keys of a file or of a quick start, with the overrides. ConfigError."""
    return (load_properties(path) if path is not None else _quick_start()).override(overrides)


def broker_config(raw: Properties) -> tuple[BrokerConfig, PluginManager]:
    """The configuration, and the plugins that it leaves enabled. ConfigError, PluginError."""
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.plugins import PluginManager

    disabled = [name.strip() for name in raw.get("kafkapy.plugins.disabled", "").split(",") if name.strip()]
    plugins = PluginManager.load(disabled)
    return BrokerConfig.from_properties(raw, plugins.broker_config_def()), plugins


def _quick_start() -> Properties:
    raw = Properties()
    for key, value in QUICK_START.items():
        raw.set(key, value)
    return raw


def _started() -> None:
    """Freeze existing objects, switch the garbage collection on, and tell the service manager."""
    gc.freeze()
    # What a request makes is gone when it is answered, without any collection; the fewer find it alive, the better.
    gc.set_threshold(GARBAGE_LOOK, 20, 20)
    gc.enable()
    notify(READY)


def _fail(sentence: str) -> NoReturn:
    print(f"kafkapy-server: {sentence}", file=sys.stderr)
    sys.exit(1)
