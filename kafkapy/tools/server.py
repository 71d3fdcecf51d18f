"""`kafkapy-server`: starts one broker in this process and runs it until SIGTERM or SIGINT.

Exit codes: 0 after a clean stop, 1 when the configuration is wrong or the broker cannot start (one sentence on stderr
says why), 2 for a command line that cannot be understood.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from kafkapy.config.properties import Properties, load_properties
from kafkapy.errors import KafkaError
from kafkapy.tools.log_setup import configure_logging
from kafkapy.version import __version__


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("properties", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--override",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set one configuration key, over the file. May be given any number of times; the last one wins.",
)
@click.option(
    "--logging",
    "logging_file",
    metavar="FILE",
    help="A logging file, as config/logging.properties. Default: $KAFKAPY_LOGGING, else INFO on stderr.",
)
@click.version_option(__version__, prog_name="kafkapy-server")
def main(properties: str | None, overrides: tuple[str, ...], logging_file: str | None) -> None:
    """Run a kafkapy broker.

    PROPERTIES is a file with Apache Kafka's broker keys, such as config/server.properties; without one every key has
    its default. Port 0 in `listeners` takes a free port, and the log says which one.

    Example: kafkapy-server config/server.properties --override listeners=PLAINTEXT://127.0.0.1:0 --override
    log.dirs=/tmp/data
    """
    try:
        configure_logging(logging_file)
        raw = load_properties(properties) if properties is not None else Properties()
        raw.override(overrides)
        # The broker is imported late, so that --help and a wrong file are answered at once.
        from kafkapy.broker.server import KafkaServer
        from kafkapy.config.broker import BrokerConfig
        from kafkapy.plugins import PluginManager

        disabled = [name.strip() for name in raw.get("kafkapy.plugins.disabled", "").split(",") if name.strip()]
        plugins = PluginManager.load(disabled)
        server = KafkaServer(BrokerConfig.from_properties(raw, plugins.broker_config_def()), plugins)
        code = server.run()
    except KafkaError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    sys.exit(code)


def _fail(sentence: str) -> NoReturn:
    print(f"kafkapy-server: {sentence}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
