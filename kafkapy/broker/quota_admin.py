"""Changes of client quotas: checks, and writes into the metadata store.

Sources: org.apache.kafka.controller.ClientQuotaControlManager for the checks, kafka.server.ZkAdminManager for the
writes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkapy.config.config_def import MAX_INT, MAX_LONG
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.metadata.config_repository import ConfigRepository, EntityChange
from kafkapy.metadata.quota_entities import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    QuotaEntity,
    entity_node,
    quota_entity,
)
from kafkapy.network.addresses import addresses_of, is_address
from kafkapy.slices import in_chunks, in_slices

__all__ = ["QuotaAlteration", "alter_quotas"]

logger = logging.getLogger("kafka.server.ZkAdminManager")

WRITTEN_AT_ONCE: Final = 100
"""Entities that one transaction of the store changes."""
RESOLVED_AT_ONCE: Final = 20
KINDS: Final = (USER, CLIENT_ID, IP)
"""The types of entities."""
MOST: Final[Mapping[str, int]] = {
    PRODUCER_BYTE_RATE: MAX_LONG,
    CONSUMER_BYTE_RATE: MAX_LONG,
    CONNECTION_CREATION_RATE: MAX_INT,
}
"""The largest value of keys whose values are whole numbers."""


class QuotaAlteration(NamedTuple):
    """An entity as the client has named it, and its changes."""

    parts: Mapping[str, str | None]
    """Type to name, None for the default entity."""
    ops: Sequence[tuple[str, float | None]]
    """(key, value), None to remove it."""


async def alter_quotas(
    repository: ConfigRepository, alterations: Iterable[QuotaAlteration], validate_only: bool
) -> list[tuple[QuotaAlteration, KafkaError | None]]:
    """Check and write; one result for each entity, in the order asked.

    All changes of an entity succeed or none.
    """
    entities: dict[tuple[tuple[str, str | None], ...], QuotaAlteration] = {}
    errors: dict[tuple[tuple[str, str | None], ...], KafkaError] = {}
    async for alteration in in_slices(alterations):
        key = tuple(alteration.parts.items())
        if len(key) <= len(KINDS):  # others are refused
            key = tuple(sorted(key, key=lambda part: part[0]))
        if key in entities or len({name for name, _ in alteration.ops}) < len(alteration.ops):
            # Kafka has the same text for a key that is there twice.
            entities.setdefault(key, alteration)
            errors[key] = _invalid(f"Ignoring duplicate entity {_text(alteration.parts)}")
            continue
        entities[key] = alteration
        error = _problem(alteration)
        if error is not None:
            errors[key] = error
    await _check_hosts(entities, errors)
    if not validate_only:
        wanted = [key for key in entities if key not in errors]
        async for chunk in in_chunks(wanted, WRITTEN_AT_ONCE):
            try:
                await repository.change_entities([_change(entities[key]) for key in chunk])
            except Exception as failure:
                logger.info("Client quotas cannot be altered", exc_info=failure)
                error = failure if isinstance(failure, KafkaError) else error_for(code_of(failure))
                errors.update(dict.fromkeys(chunk, error))
    return [(alteration, errors.get(key)) async for key, alteration in in_slices(entities.items())]


def _problem(alteration: QuotaAlteration) -> KafkaError | None:
    """The first thing that is wrong with an alteration in itself, without the names of hosts."""
    parts = alteration.parts
    if not parts:
        return _invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in KINDS:
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
    if IP in parts and len(parts) > 1:
        # Kafka's text, with its missing space.
        text = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        return _invalid(text)
    keys = (CONNECTION_CREATION_RATE,) if IP in parts else CLIENT_KEYS
    for key, value in alteration.ops:
        error = None if value is None else _value_problem(key, value, keys)
        if error is not None:
            return error
    return None


def _value_problem(key: str, value: float, keys: Sequence[str]) -> KafkaError | None:
    if key not in keys:
        return _invalid(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        return _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        return _invalid(f"Quota {key} must be greater than 0")
    most = MOST.get(key)
    if most is None:
        return None
    if value > float(most):
        kind = "an INT" if most == MAX_INT else "a LONG"
        return _invalid(f"Proposed value for {key} is too large for {kind}.")
    if value % 1.0 > 1e-6:
        return _invalid(f"{key} cannot be a fractional value.")
    return None


async def _check_hosts(
    entities: Mapping[tuple[tuple[str, str | None], ...], QuotaAlteration],
    errors: dict[tuple[tuple[str, str | None], ...], KafkaError],
) -> None:
    """Refuse host names that have no address; some at a time, because each may take seconds."""
    hosts = [
        (key, name)
        async for key, alteration in in_slices(entities.items())
        if key not in errors and (name := alteration.parts.get(IP)) and is_address(name) is None
    ]
    async for chunk in in_chunks(hosts, RESOLVED_AT_ONCE):
        found = await asyncio.gather(*(addresses_of(name) for _, name in chunk))
        for (key, name), addresses in zip(chunk, found, strict=True):
            if not addresses:
                errors[key] = _invalid(f"{name} is not a valid IP or resolvable host.")


def _change(alteration: QuotaAlteration) -> EntityChange:
    ops = alteration.ops

    def edit(config: dict[str, str]) -> dict[str, str]:
        for key, value in ops:
            if value is None:
                config.pop(key, None)
            else:
                config[key] = _value_text(key, value)
        return config

    return EntityChange(*entity_node(_entity(alteration.parts)), edit)


def _entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    name = parts.get(IP)
    return quota_entity({IP: is_address(name) or name} if name else parts)


def _value_text(key: str, value: float) -> str:
    """As Apache Kafka writes it: whole numbers, or the text of a Java double."""
    return str(min(int(value), MOST[key])) if key in MOST else repr(float(value))


def _text(parts: Mapping[str, str | None]) -> str:
    """An entity as Kafka's error texts name it."""
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{named}}})"


def _invalid(text: str) -> KafkaError:
    return error_for(ErrorCode.INVALID_REQUEST, text)
