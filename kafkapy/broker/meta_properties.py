"""`meta.properties`: which cluster and which broker a log directory belongs to. Source:
kafka.server.BrokerMetadataCheckpoint.

A properties file in each log directory, version 0 (the format of clusters with ZooKeeper, which Apache Kafka 3.9
opens):

    version=0
    broker.id=1
    cluster.id=WNzc7e3mQT2qdN0vVIYyZg

Blocking file calls: used at start only, before any listener is open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkapy.config.properties import load_properties
from kafkapy.errors import KafkaError

FILE_NAME: Final = "meta.properties"
VERSION: Final = "0"


class StartupError(KafkaError):
    """The broker cannot start; the message is one sentence for the operator."""


class InconsistentClusterIdError(StartupError):
    """A log directory belongs to another cluster."""


class InconsistentBrokerIdError(StartupError):
    """A log directory belongs to another broker."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """What one meta.properties file says. Immutable."""

    broker_id: int | None = None
    cluster_id: str | None = None


def read(directory: str) -> MetaProperties | None:
    """What the directory's file says, None where there is none. StartupError when it cannot be understood."""
    path = Path(directory) / FILE_NAME
    if not path.exists():
        return None
    properties = load_properties(path)
    version = properties.get("version", VERSION)
    if version not in ("0", "1"):
        raise StartupError(f"{path} has version {version}, and only versions 0 and 1 are known")
    raw_id = properties.get("broker.id", properties.get("node.id"))
    try:
        broker_id = None if raw_id is None else int(raw_id)
    except ValueError:
        raise StartupError(f"{path} holds {raw_id!r} as the broker's id, which is not a number") from None
    return MetaProperties(broker_id, properties.get("cluster.id"))


def read_all(directories: Iterable[str]) -> dict[str, MetaProperties | None]:
    """What each directory's file says. StartupError when two of them contradict each other."""
    found = {directory: read(directory) for directory in directories}
    _agree("cluster id", {name: meta.cluster_id for name, meta in found.items() if meta}, InconsistentClusterIdError)
    _agree("broker id", {name: meta.broker_id for name, meta in found.items() if meta}, InconsistentBrokerIdError)
    return found


def stored(found: Mapping[str, MetaProperties | None]) -> MetaProperties:
    """The ids that the directories agree on."""
    metas = [meta for meta in found.values() if meta is not None]
    return MetaProperties(
        next((meta.broker_id for meta in metas if meta.broker_id is not None), None),
        next((meta.cluster_id for meta in metas if meta.cluster_id is not None), None),
    )


def check_cluster_id(found: Mapping[str, MetaProperties | None], cluster_id: str) -> None:
    """InconsistentClusterIdError when a directory belongs to another cluster than the metadata store says."""
    for directory, meta in found.items():
        if meta is not None and meta.cluster_id not in (None, cluster_id):
            raise InconsistentClusterIdError(
                f"Log directory {directory} belongs to cluster {meta.cluster_id}, but this broker is part of cluster "
                f"{cluster_id}; point log.dirs or the metadata store at the right place"
            )


def write_all(directories: Iterable[str], broker_id: int, cluster_id: str) -> None:
    """Write the file where it is missing or says something else. OSError."""
    wanted = MetaProperties(broker_id, cluster_id)
    for directory in directories:
        if read(directory) != wanted:
            _write(Path(directory), broker_id, cluster_id)


def _write(directory: Path, broker_id: int, cluster_id: str) -> None:
    text = (
        f"#\n#{time.strftime('%a %b %d %H:%M:%S UTC %Y', time.gmtime())}\n"
        f"cluster.id={cluster_id}\nbroker.id={broker_id}\nversion={VERSION}\n"
    )
    temporary = directory / f"{FILE_NAME}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / FILE_NAME)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)  # the rename itself must survive a crash, or the next start makes a second identity
    finally:
        os.close(descriptor)


def _agree(what: str, values: Mapping[str, object], error: type[StartupError]) -> None:
    said = {name: value for name, value in values.items() if value is not None}
    if len(set(said.values())) > 1:
        listed = ", ".join(f"{name} has {value}" for name, value in said.items())
        raise error(f"The log directories do not agree on the {what}: {listed}")
