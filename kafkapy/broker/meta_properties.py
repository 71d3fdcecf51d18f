"""`meta.properties`: which cluster and which broker a log directory belongs to. Source:
kafka.server.BrokerMetadataCheckpoint.

A properties file in each log directory, version 0 (the format of clusters with ZooKeeper, which Apache Kafka 3.9
opens). Version 1, of clusters with KRaft, has node.id in place of broker.id:

    version=0
    broker.id=1
    cluster.id=WNzc7e3mQT2qdN0vVIYyZg
    directory.id=EY3yYTSySVGtGjHjWLMcRA

directory.id (KIP-858, Kafka 3.7 and later) names the directory itself: 16 random bytes, Base64 like a topic id. Each
directory gets one and keeps it; keys that are not known here are kept as well.

Blocking file calls: used at start only, before any listener is open.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kafkapy.config.properties import load_properties
from kafkapy.errors import KafkaError
from kafkapy.types import uuid_from_string, uuid_to_string

FILE_NAME: Final = "meta.properties"
VERSION: Final = "0"
KNOWN_KEYS: Final = frozenset({"version", "broker.id", "node.id", "cluster.id", "directory.id"})
RESERVED_DIRECTORY_IDS: Final = 100
"""The first ids have special meanings: unassigned, lost, migrating (org.apache.kafka.common.DirectoryId)."""


class StartupError(KafkaError):
    """The broker cannot start; the message is one sentence for the operator."""


class InconsistentClusterIdError(StartupError):
    """A log directory belongs to another cluster."""


class InconsistentBrokerIdError(StartupError):
    """A log directory belongs to another broker."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of one meta.properties file. Immutable."""

    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    version: str = VERSION
    others: Mapping[str, str] = field(default_factory=dict)
    """Keys that are not known here."""


def read(directory: str) -> MetaProperties | None:
    """The content of the directory's file, None without one.

    StartupError when it cannot be understood.
    """
    path = Path(directory) / FILE_NAME
    if not path.exists():
        return None
    properties = load_properties(path)
    version = properties.get("version", VERSION).strip()
    if version not in ("0", "1"):
        raise StartupError(f"{path} has version {version}, and only versions 0 and 1 are known")
    raw_id = properties.get("broker.id" if version == "0" else "node.id")
    try:
        broker_id = None if raw_id is None else int(raw_id)
    except ValueError:
        raise StartupError(f"{path} holds {raw_id!r} as the broker's id, which is not a number") from None
    directory_id = properties.get("directory.id")
    if directory_id is not None:
        try:
            number = uuid_from_string(directory_id).int
        except ValueError:
            raise StartupError(f"{path} holds {directory_id!r} as directory.id, which is no id") from None
        if number < RESERVED_DIRECTORY_IDS:
            raise StartupError(f"{path} holds {directory_id!r} as directory.id, which is reserved")
    others = {key: value for key, value in properties.items() if key not in KNOWN_KEYS}
    return MetaProperties(broker_id, properties.get("cluster.id"), directory_id, version, others)


def read_all(directories: Iterable[str]) -> dict[str, MetaProperties | None]:
    """The content of each directory's file.

    StartupError when two of them contradict each other.
    """
    found = {directory: read(directory) for directory in directories}
    _agree("cluster id", {name: meta.cluster_id for name, meta in found.items() if meta}, InconsistentClusterIdError)
    seen: dict[str, str] = {}
    for directory, meta in found.items():
        if meta is not None and meta.directory_id is not None:
            if meta.directory_id in seen:
                raise StartupError(
                    f"The log directories {seen[meta.directory_id]} and {directory} have the same directory.id "
                    f"{meta.directory_id}: one is a copy of the other"
                )
            seen[meta.directory_id] = directory
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
    """Write each file that is missing, differs or lacks a directory id.

    OSError, StartupError.
    """
    for directory in directories:
        known = read(directory) or MetaProperties()
        wanted = replace(
            known, broker_id=broker_id, cluster_id=cluster_id, directory_id=known.directory_id or _new_directory_id()
        )
        if known != wanted:
            _write(Path(directory), wanted)


def _new_directory_id() -> str:
    while True:
        found = uuid.uuid4()
        text = uuid_to_string(found)
        # A dash in front would look like an option on a command line, so Kafka avoids it as well.
        if found.int >= RESERVED_DIRECTORY_IDS and not text.startswith("-"):
            return text


def _escaped(text: str, *, key: bool = False) -> str:
    """As java.util.Properties.store writes it, in ASCII."""
    special = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    special |= {sign: f"\\{sign}" for sign in "=:#!"}
    out = []
    for at, sign in enumerate(text):
        if sign == " " and (key or at == 0):
            out.append("\\ ")
        elif " " <= sign <= "~":
            out.append(special.get(sign, sign))
        else:
            units = sign.encode("utf-16-be")
            escapes = [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
            out.append(special.get(sign, "".join(escapes)))
    return "".join(out)


def _write(directory: Path, meta: MetaProperties) -> None:
    values = {
        **meta.others,
        "cluster.id": meta.cluster_id,
        "broker.id" if meta.version == "0" else "node.id": str(meta.broker_id),
        "directory.id": meta.directory_id,
        "version": meta.version,
    }
    lines = [f"{_escaped(key, key=True)}={_escaped(value)}" for key, value in values.items() if value is not None]
    stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    temporary = directory / f"{FILE_NAME}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write("\n".join(["#", f"#{stamp}", *lines, ""]))
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
