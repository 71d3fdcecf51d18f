"""`kafkapy`: the command-line tools, one sub-command each."""

from __future__ import annotations

import click

from kafkapy.tools.dump_log import dump_log
from kafkapy.tools.log_dirs import log_dirs
from kafkapy.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kafkapy")
def main() -> None:
    """Tools for kafkapy and Apache Kafka data."""


main.add_command(dump_log)
main.add_command(log_dirs)

if __name__ == "__main__":
    main()
