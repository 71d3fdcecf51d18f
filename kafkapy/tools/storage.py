"""`kafkapy storage`: the identity of log directories, for tools that format them.

Counterpart of kafka-storage.sh. A broker of kafkapy formats its directories itself at its first start; these commands
give a new cluster an id that is known before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import json_option, local_errors
from kafkapy.tools.output import Column, Output
from kafkapy.tools.terminal import echo
from kafkapy.types import random_uuid, uuid_from_string, uuid_to_string

__all__ = ["storage"]

COLUMNS = (
    Column("log_dir", "directory"),
    Column("state"),
    Column("broker_id", "broker", right=True),
    Column("cluster_id", "cluster"),
    Column("directory_id", quiet=True),
)
FORMATTED, UNFORMATTED = "formatted", "not formatted"

config_option = click.option(
    "--config",
    "-c",
    "properties",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The broker's properties file.",
)
override_option = click.option(
    "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one configuration key, over the file."
)


@click.group("storage", cls=CommandGroup)
def storage() -> None:
    """Format log directories, and show their identity."""


@storage.command("random-uuid")
def random_uuid_() -> None:
    """Print a new id for a cluster."""
    echo(uuid_to_string(random_uuid()))


@storage.command("info")
@config_option
@override_option
@json_option
@local_errors
def info(properties: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show broker, cluster and id of each log directory.

    The exit code is 1 when a directory is not formatted.
    """
    from kafkapy.broker import meta_properties

    directories = _directories(properties, overrides)
    with _one_sentence():
        found = meta_properties.read_all(directories)
    rows: list[dict[str, Any]] = [
        {
            "log_dir": directory,
            "state": UNFORMATTED if meta is None else FORMATTED,
            "broker_id": meta and meta.broker_id,
            "cluster_id": meta and meta.cluster_id,
            "directory_id": meta and meta.directory_id,
        }
        for directory, meta in found.items()
    ]
    Output(as_json).rows(rows, COLUMNS)
    sys.exit(int(any(row["state"] == UNFORMATTED for row in rows)))


@storage.command("format")
@config_option
@override_option
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="The cluster's id, as of random-uuid.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Leave formatted directories of that cluster as they are.")
@local_errors
def format_(properties: str, overrides: tuple[str, ...], cluster_id: str, ignore_formatted: bool) -> None:
    """Write the identity of the broker into its log directories.

    Example: kafkapy storage format -t $(kafkapy storage random-uuid) -c config/server.properties
    """
    from kafkapy.broker import meta_properties
    from kafkapy.broker.identity import configured_id
    from kafkapy.tools.broker_run import broker_config, read_properties

    try:
        uuid_from_string(cluster_id)
    except ValueError:
        sentence = f"{cluster_id!r} is no id of a cluster: kafkapy storage random-uuid makes one."
        raise click.ClickException(sentence) from None
    config, _ = broker_config(read_properties(properties, overrides))
    if config.metadata_store != "embedded":
        raise click.ClickException(
            f"The metadata store {config.metadata_store} has the id of the cluster: its brokers need no format."
        )
    directories = _directories(properties, overrides)
    with _one_sentence(), _locked(directories):
        found = meta_properties.read_all(directories)
        done = [directory for directory, meta in found.items() if meta is not None]
        if done and not ignore_formatted:
            raise click.ClickException(
                f"{', '.join(done)} is formatted already: --ignore-formatted leaves such directories as they are."
            )
        node = configured_id(config, meta_properties.stored(found).broker_id)
        if node is None:
            raise click.ClickException("The broker has no id: set broker.id or node.id.")
        meta_properties.check_cluster_id(found, cluster_id)
        meta_properties.write_all(directories, node, cluster_id)
    for directory in directories:
        if directory not in done:
            echo(f"Formatted {directory} for broker {node} of cluster {cluster_id}.")


def _directories(properties: str, overrides: Sequence[str]) -> list[str]:
    from kafkapy.tools.broker_run import broker_config, read_properties

    config, _ = broker_config(read_properties(properties, overrides))
    if config.keeps_nothing:
        raise click.ClickException("The broker keeps its records in memory: there is no directory.")
    return list(dict.fromkeys(config.log_dirs))


@contextmanager
def _locked(directories: Sequence[str]) -> Iterator[None]:
    """Make and lock the directories, as a broker does. KafkaError when a broker runs on one."""
    from kafkapy.log.log_dir import LogDir

    with ExitStack() as stack:
        for directory in directories:
            held = LogDir(Path(directory))
            held.acquire()
            stack.callback(held.release)
        yield


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Turn the failure of a file into one sentence."""
    try:
        yield
    except OSError as error:
        raise KafkaError(f"{error.filename}: {error.strerror}") from None
