"""The command line of `kafkapy-server`: help, version, errors.

kafkapy/tools/server.py imports this module only for a command line that it does not understand itself.
"""

from __future__ import annotations

import click

from kafkapy.tools.broker_run import run_broker
from kafkapy.version import __version__


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("properties", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--override",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set one configuration key, over the file. Repeat it for more keys; the last value wins.",
)
@click.option(
    "--logging",
    "logging_file",
    metavar="FILE",
    help="Logging file, such as config/logging.properties. Default: $KAFKAPY_LOGGING, else INFO on stderr.",
)
@click.option(
    "--rebuild-metadata",
    is_flag=True,
    help="Make topics of the logs that the metadata store does not know, when it was lost or is older than they are. "
    "Settings of topics are not in the logs: retention is off until you set it.",
)
@click.option(
    "--add-scram",
    metavar="TEXT",
    multiple=True,
    help="Add a SCRAM user that is missing, such as 'SCRAM-SHA-512=[name=admin,password-file=/run/secrets/admin]'. The "
    "password may also come from password-env=NAME or password=TEXT.",
)
@click.version_option(__version__, prog_name="kafkapy-server")
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    logging_file: str | None,
    *,
    rebuild_metadata: bool,
    add_scram: tuple[str, ...],
) -> None:
    """Run a kafkapy broker.

    PROPERTIES is a file with Apache Kafka's broker keys, such as config/server.properties. Without a file,
    the broker is a cluster of one broker, listens on 127.0.0.1:9092 and keeps its data in ./data/kafkapy-logs. Port 0
    in `listeners` takes a free port, and the log names it.

    Example: kafkapy-server config/server.properties --override listeners=PLAINTEXT://127.0.0.1:0 --override
    log.dirs=/tmp/data
    """
    run_broker(properties, overrides, logging_file, rebuild_metadata=rebuild_metadata, add_scram=add_scram)
