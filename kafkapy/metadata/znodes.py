"""The metadata tree's layout and node encoding: Kafka 3.9's, for its tools.

    /brokers/ids/<id>                            ephemeral; endpoints, rack; its created transaction is the broker epoch
    /brokers/topics/<topic>                      topic id, replicas of each partition, running reassignments
    /brokers/topics/<topic>/partitions/<p>/state leader, ISR, epochs
    /brokers/seqid                               its version counts generated broker ids
    /config/topics|brokers|clients|users/<name>  settings; /config/changes/config_change_<seq> tells of a change
    /controller, /controller_epoch               ephemeral: who controls; how often that has changed
    /admin/delete_topics/<topic>                 the topic is to be deleted
    /kafka-acl/<Type>/<name>                     ACLs of one resource (literal); /kafka-acl-changes tells of a change
    /kafka-acl-extended/prefixed/<Type>/<name>   ACLs of a prefix; /kafka-acl-extended-changes tells of a change
    /isr_change_notification, /log_dir_event_notification, /latest_producer_id_block, /cluster/id, /feature

Values are compact JSON in UTF-8, except /controller_epoch (a decimal number). Decoders ignore keys they do not know and
raise ValueError for what is not such a node. Source: kafka.zk.ZkData.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

from kafkapy.types import Endpoint, SecurityProtocol, TopicPartition, uuid_from_string, uuid_to_string

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "config_change_"
"""The beginning of the names of notifications."""
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"

CONFIG_TOPICS: Final = "topics"
CONFIG_BROKERS: Final = "brokers"
CONFIG_CLIENTS: Final = "clients"
CONFIG_USERS: Final = "users"
CONFIG_IPS: Final = "ips"
CONFIG_GROUPS: Final = "groups"
CONFIG_CLIENT_METRICS: Final = "client-metrics"
CONFIG_TYPES: Final = (
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_CLIENTS,
    CONFIG_USERS,
    CONFIG_IPS,
    CONFIG_GROUPS,
    CONFIG_CLIENT_METRICS,
)
DEFAULT_ENTITY: Final = "<default>"
"""The node name of the defaults of all brokers (or clients, users)."""

PERSISTENT_PATHS: Final = (
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{name}" for name in CONFIG_TYPES),
)
"""Nodes that every broker creates at its start where they are missing."""

_ENDPOINT = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]*)\]|(?P<host>[^\[\]:]*)):(?P<port>[0-9]{1,5})")


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def _field(value: Mapping[str, Any], key: str, kind: type, what: str) -> Any:
    found = value.get(key)
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"{what} lacks a usable {key!r}")
    return found


# --- brokers ------------------------------------------------------------------------------------------------------


class BrokerRegistration(NamedTuple):
    """A live broker's registration, the content of its node. Immutable."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    epoch: int = -1
    """The transaction that created the node; not part of the value.

    A broker that registers again has a higher one.
    """
    features: tuple[tuple[str, int, int], ...] = ()
    """Supported features: (name, lowest level, highest level)."""
    cordoned: bool = False
    """Whether the broker gets no new partitions (KIP-1066).

    Apache Kafka's nodes have no such field, and its brokers ignore it.
    """

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The advertised address of a listener."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None


def broker_path(broker_id: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(broker: BrokerRegistration, timestamp_ms: int | None = None) -> bytes:
    """A broker's registration, encoded in version 5.

    `timestamp_ms` defaults to the current time.
    """
    plain = next((e for e in broker.endpoints if e.security_protocol is SecurityProtocol.PLAINTEXT), None)
    value: dict[str, Any] = {
        "features": {name: {"min_version": low, "max_version": high} for name, low, high in broker.features},
        "listener_security_protocol_map": {e.listener_name: e.security_protocol.name for e in broker.endpoints},
        "endpoints": [e.connection_string for e in broker.endpoints],
        "jmx_port": broker.jmx_port,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": 5,
        "timestamp": str(int(time.time() * 1000) if timestamp_ms is None else timestamp_ms),
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if broker.cordoned:
        value["cordoned"] = True
    return _encode(value)


def decode_broker(broker_id: int, data: bytes, epoch: int = -1) -> BrokerRegistration:
    """A broker's registration, decoded from any version (1 to 5)."""
    what = f"the registration of broker {broker_id}"
    value = _decode(data, what)
    version = _field(value, "version", int, what)
    if version < 1:
        raise ValueError(f"{what} has the unsupported version {version}")
    if version == 1:
        host, port = _field(value, "host", str, what), _field(value, "port", int, what)
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host, port),)
    else:
        protocols = value.get("listener_security_protocol_map") or {p.name: p.name for p in SecurityProtocol}
        endpoints = tuple(_parse_endpoint(text, protocols, what) for text in _field(value, "endpoints", list, what))
    features = tuple(
        (name, int(levels["min_version"]), int(levels["max_version"]))
        for name, levels in (value.get("features") or {}).items()
    )
    rack, jmx_port = value.get("rack"), int(value.get("jmx_port", -1))
    return BrokerRegistration(broker_id, endpoints, rack, jmx_port, epoch, features, value.get("cordoned") is True)


def _parse_endpoint(text: str, protocols: Mapping[str, str], what: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or match["name"] not in protocols:
        raise ValueError(f"{what} has an endpoint {text!r} that cannot be read")
    host = match["v6"] if match["v6"] is not None else match["host"]
    try:
        protocol = SecurityProtocol[protocols[match["name"]]]
    except KeyError:
        raise ValueError(f"{what} has an unknown security protocol {protocols[match['name']]!r}") from None
    return Endpoint(match["name"], host, int(match["port"]), protocol)


# --- topics and partitions ----------------------------------------------------------------------------------------


class ReplicaAssignment(NamedTuple):
    """The brokers that hold a partition, the preferred leader first.

    With the replicas that a running reassignment adds and removes.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment of the partition is running."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the running reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the running reassignment.

        Their order may differ from the one before: the target's replicas stand first.
        """
        return tuple(each for each in self.replicas if each not in self.adding)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """The assignment while the partition moves from its origin to `target` (KIP-455)."""
        origin = self.origin
        replicas = tuple(dict.fromkeys([*target, *origin]))
        return ReplicaAssignment(
            replicas,
            tuple(each for each in replicas if each not in origin),
            tuple(each for each in replicas if each not in target),
        )

    def without(self, broker: int) -> ReplicaAssignment:
        """The assignment without one broker."""
        return ReplicaAssignment(*(tuple(each for each in part if each != broker) for part in self))


class TopicAssignment(NamedTuple):
    """A topic as its node describes it.

    `topic_id` is None for topics of brokers older than 2.8.
    """

    topic_id: UUID | None
    partitions: Mapping[int, ReplicaAssignment]


NO_LEADER: Final = -1
"""The leader of a partition without one."""


class PartitionState(NamedTuple):
    """A partition's leader and ISR, as its state node has them. Immutable."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    """The leader came from outside the ISR and has not finished its recovery."""
    version: int = -1
    """The node's version, for conditional writes; not part of the value.

    On the wire it is the partition epoch.
    """


def topic_path(topic: str) -> str:
    """The path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The path of the parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """The path of the parent of a partition's state."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """The path of a partition's leader and ISR."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def encode_topic(assignment: TopicAssignment) -> bytes:
    """A topic's assignment, encoded in version 3."""
    items = sorted(assignment.partitions.items())
    value: dict[str, Any] = {
        "removing_replicas": {str(p): list(a.removing) for p, a in items if a.removing},
        "partitions": {str(p): list(a.replicas) for p, a in items},
    }
    if assignment.topic_id is not None:
        value["topic_id"] = uuid_to_string(assignment.topic_id)
    value["adding_replicas"] = {str(p): list(a.adding) for p, a in items if a.adding}
    value["version"] = 3
    return _encode(value)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """A topic's assignment, decoded from versions 1 to 3."""
    what = f"the node of topic {topic}"
    value = _decode(data, what)
    adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
    try:
        partitions = {
            int(p): ReplicaAssignment(tuple(replicas), tuple(adding.get(p, ())), tuple(removing.get(p, ())))
            for p, replicas in _field(value, "partitions", dict, what).items()
        }
    except TypeError as error:
        raise ValueError(f"{what} has an assignment that cannot be read: {error}") from None
    topic_id = value.get("topic_id")
    return TopicAssignment(None if topic_id is None else uuid_from_string(topic_id), partitions)


def encode_partition_state(state: PartitionState) -> bytes:
    """A partition's state, encoded in version 1."""
    value: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.recovering:
        value["leader_recovery_state"] = 1
    return _encode(value)


def decode_partition_state(partition: TopicPartition, data: bytes, version: int) -> PartitionState:
    """A partition's state; `version` is the node's."""
    try:
        return _partition_state(data, version)
    except ValueError as error:
        raise ValueError(f"the state of partition {partition} cannot be read: {error}") from None


@lru_cache(maxsize=1024)
def _partition_state(data: bytes, version: int) -> PartitionState:
    """One state for all partitions with the same leader, ISR and epochs.

    Thousands of partitions share it.
    """
    what = "the node"
    value = _decode(data, what)
    return PartitionState(
        leader=_field(value, "leader", int, what),
        leader_epoch=_field(value, "leader_epoch", int, what),
        isr=tuple(int(each) for each in _field(value, "isr", list, what)),
        controller_epoch=_field(value, "controller_epoch", int, what),
        recovering=value.get("leader_recovery_state", 0) == 1,
        version=version,
    )


def encode_reassignments(partitions: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """The partitions that old tools move, with their target replicas, encoded."""
    entries = [{"topic": t, "partition": p, "replicas": list(to)} for (t, p), to in partitions.items()]
    return _encode({"version": 1, "partitions": entries})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions that old tools move, with their target replicas.

    ValueError when the node cannot be read.
    """
    what = "the node of partition reassignments"
    entries = _field(_decode(data, what), "partitions", list, what)
    try:
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(int(to) for to in each["replicas"])
            for each in entries
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"{what} has an entry that cannot be read: {error!r}") from None


def encode_preferred_elections(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions for which old tools ask a preferred election, encoded."""
    return _encode({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def decode_preferred_elections(data: bytes) -> list[TopicPartition]:
    """The partitions for which old tools ask a preferred election.

    ValueError when the node cannot be read.
    """
    what = "the node of preferred elections"
    entries = _field(_decode(data, what), "partitions", list, what)
    try:
        return [TopicPartition(str(each["topic"]), int(each["partition"])) for each in entries]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{what} has an entry that cannot be read: {error!r}") from None


def delete_topic_path(topic: str) -> str:
    """The path of a topic's mark for deletion; the node is empty."""
    return f"{DELETE_TOPICS}/{topic}"


# --- configuration ------------------------------------------------------------------------------------------------


def sanitize(name: str) -> str:
    """A user or client name as a node name: percent-encoded.

    Source: org.apache.kafka.common.utils.Sanitizer.
    """
    return quote(name, safe="-._~").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The user or client name that a node name stands for."""
    return unquote(name)


def config_path(entity_type: str, name: str) -> str:
    """The path of an entity's settings.

    `name` is sanitized already, or DEFAULT_ENTITY.
    """
    return f"{CONFIG}/{entity_type}/{name}"


def encode_config(config: Mapping[str, str]) -> bytes:
    """The settings of an entity, encoded."""
    return _encode({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(data: bytes) -> dict[str, str]:
    """The settings of an entity; empty for an empty node."""
    if not data:
        return {}
    config = _decode(data, "a configuration node").get("config")
    if not isinstance(config, dict):
        return {}
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Version 2 of a change notification; `entity_path` is like "topics/orders"."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """The entity path of a change notification of version 1 or 2."""
    what = "a configuration change"
    value = _decode(data, what)
    if _field(value, "version", int, what) == 1:
        return f"{_field(value, 'entity_type', str, what)}/{_field(value, 'entity_name', str, what)}"
    return str(_field(value, "entity_path", str, what))


# --- controller and cluster ---------------------------------------------------------------------------------------


def encode_controller(broker_id: int, timestamp_ms: int | None = None) -> bytes:
    """The controller's broker id and its start time, in version 2."""
    timestamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """The id of the controlling broker."""
    return int(_field(_decode(data, "the controller's node"), "brokerid", int, "the controller's node"))


def encode_controller_epoch(epoch: int) -> bytes:
    """The controller epoch, encoded as a decimal number."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """The controller epoch: the number of elections so far."""
    return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    """The cluster id, encoded.

    Kafka writes the version of this node as text.
    """
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster's id."""
    return str(_field(_decode(data, "the cluster's node"), "id", str, "the cluster's node"))


class ProducerIdBlock(NamedTuple):
    """A block of producer ids for one broker: `first` to `last`, both included."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The latest block of producer ids, encoded.

    The numbers are text because they may be longer than a JSON number.
    """
    return _encode(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """The latest block of producer ids, decoded."""
    what = "the producer id block"
    value = _decode(data, what)
    first, last = int(_field(value, "block_start", str, what)), int(_field(value, "block_end", str, what))
    return ProducerIdBlock(_field(value, "broker", int, what), first, last)


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions whose ISR a leader has changed, encoded."""
    return _encode({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    """The partitions whose ISR a leader has changed, decoded."""
    entries = _decode(data, "an ISR change").get("partitions") or []
    return [TopicPartition(each["topic"], each["partition"]) for each in entries]


def encode_log_dir_event(broker_id: int) -> bytes:
    """The event 1 of a broker with a failed log directory, encoded."""
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    """The broker whose log directory has failed."""
    return int(_field(_decode(data, "a log directory event"), "broker", int, "a log directory event"))


def encode_feature(status_enabled: bool, features: Mapping[str, int], version: int = 2) -> bytes:
    """Finalized features (KIP-584): name to highest version level, encoded.

    Layout version 1 has a lowest level too.
    """
    lowest = {"min_version_level": 1} if version == 1 else {}
    levels = {name: {**lowest, "max_version_level": level} for name, level in features.items()}
    return _encode({"features": levels, "version": version, "status": int(status_enabled)})


def decode_feature(data: bytes) -> tuple[bool, dict[str, int]]:
    """Whether feature versioning is on, and the finalized features."""
    value = _decode(data, "the feature node")
    levels = value.get("features") or {}
    return value.get("status") == 1, {name: int(level["max_version_level"]) for name, level in levels.items()}


def feature_layout(data: bytes) -> int:
    """The version of the layout of the feature node."""
    return int(_field(_decode(data, "the feature node"), "version", int, "the feature node"))


def sequence_number(name: str) -> int:
    """The number at the end of a sequential node's name."""
    return int(name[-10:])


def in_sequence(names: Sequence[str]) -> list[str]:
    """Names of sequential nodes, in order of their numbers."""
    return sorted(names, key=sequence_number)
