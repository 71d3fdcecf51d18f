"""Runs a broker in this process, from configuration to exit code.

See kafkapy/tools/server.py.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from kafkapy.config.properties import Properties, load_properties
from kafkapy.config.single_node import QUICK_START
from kafkapy.errors import KafkaError
from kafkapy.tools.log_setup import configure_logging

GARBAGE_LOOK: Final = 10_000
"""So many objects more than before are a reason to look for those that only know each other."""


def run_broker(properties: str | None, overrides: Sequence[str], logging_file: str | None) -> NoReturn:
    """Run a broker until a signal stops it.

    SystemExit with the exit code.
    """
    try:
        configure_logging(logging_file)
        raw = load_properties(properties) if properties is not None else _quick_start()
        raw.override(overrides)
        # Nearly everything that a start makes stays: looking it through for garbage again and again is lost time.
        gc.disable()
        # The broker is imported late, so that --help and a wrong file are answered at once.
        from kafkapy.broker.server import KafkaServer
        from kafkapy.config.broker import BrokerConfig
        from kafkapy.plugins import PluginManager

        disabled = [name.strip() for name in raw.get("kafkapy.plugins.disabled", "").split(",") if name.strip()]
        plugins = PluginManager.load(disabled)
        server = KafkaServer(BrokerConfig.from_properties(raw, plugins.broker_config_def()), plugins)
        code = server.run(_started)
    except KafkaError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    sys.exit(code)


def _quick_start() -> Properties:
    raw = Properties()
    for key, value in QUICK_START.items():
        raw.set(key, value)
    return raw


def _started() -> None:
    """Freeze existing objects, and switch the garbage collection on."""
    gc.freeze()
    # What a request makes is gone when it is answered, without any collection; the fewer find it alive, the better.
    gc.set_threshold(GARBAGE_LOOK, 20, 20)
    gc.enable()


def _fail(sentence: str) -> NoReturn:
    print(f"kafkapy-server: {sentence}", file=sys.stderr)
    sys.exit(1)
