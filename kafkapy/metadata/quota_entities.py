"""Entities of client quotas, and their nodes in the metadata store.

    /config/users/<user>                      one user; beside its SCRAM credentials
    /config/users/<user>/clients/<client id>  one client id of a user
    /config/clients/<client id>               a client id, whoever the user is
    /config/ips/<address>                     an address

Each name is percent-encoded, or `<default>`: all users, client ids or addresses without their own entity. Source:
kafka.server.ZkAdminManager and kafka.server.DynamicConfig.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kafkapy.metadata.znodes import CONFIG_CLIENTS, CONFIG_IPS, CONFIG_USERS, DEFAULT_ENTITY, desanitize, sanitize

__all__ = [
    "CLIENT_ID",
    "IP",
    "QUOTA_KEYS",
    "QUOTA_TYPES",
    "USER",
    "QuotaEntity",
    "entity_node",
    "entity_of_node",
    "quota_entity",
    "quota_values",
]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
QUOTA_KEYS: Final = (*CLIENT_KEYS, CONNECTION_CREATION_RATE)
QUOTA_TYPES: Final = (CONFIG_USERS, CONFIG_CLIENTS, CONFIG_IPS)
"""The entity types of the store that hold quotas."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in the order user, client-id, ip; the name None is the default entity."""

CLIENTS_BELOW: Final = "/clients/"


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these types and names."""
    return tuple((kind, parts[kind]) for kind in (USER, CLIENT_ID, IP) if kind in parts)


def entity_node(entity: QuotaEntity) -> tuple[str, str]:
    """(entity type, node name) of an entity: see ConfigRepository."""
    parts = dict(entity)
    if IP in parts:
        return CONFIG_IPS, _node_name(parts[IP])
    if USER not in parts:
        return CONFIG_CLIENTS, _node_name(parts[CLIENT_ID])
    user = _node_name(parts[USER])
    return CONFIG_USERS, f"{user}{CLIENTS_BELOW}{_node_name(parts[CLIENT_ID])}" if CLIENT_ID in parts else user


def entity_of_node(entity_type: str, name: str) -> QuotaEntity | None:
    """The entity of a node; None for a node of something else."""
    if entity_type == CONFIG_USERS:
        user, below, client_id = name.partition(CLIENTS_BELOW)
        parts = {USER: _entity_name(user)}
        if below:
            parts[CLIENT_ID] = _entity_name(client_id)
        return quota_entity(parts)
    if entity_type == CONFIG_CLIENTS:
        return ((CLIENT_ID, _entity_name(name)),)
    return ((IP, _entity_name(name)),) if entity_type == CONFIG_IPS else None


def quota_values(config: Mapping[str, str]) -> dict[str, float]:
    """The quotas among an entity's settings, without values that are no numbers."""
    return dict(_numbers(config))


def _numbers(config: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for key in QUOTA_KEYS:
        if key in config:
            try:
                yield key, float(config[key])
            except ValueError:
                continue


def _node_name(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else sanitize(name)


def _entity_name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else desanitize(node)
