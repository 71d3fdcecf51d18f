"""UpdateFeatures at the controller: the checks of Kafka, and the change of /feature.

All levels of a request change together, or none. Every live broker must support a level before it is finalized.
Source: org.apache.kafka.controller.FeatureControlManager, Kafka 4.4. In a ZooKeeper cluster each feature has its own
outcome, and none is supported. Source: kafka.controller.KafkaController, Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.features import BY_NAME, METADATA_VERSION, changes_metadata
from kafkapy.slices import in_slices
from kafkapy.types import UpdateFeatureType

if TYPE_CHECKING:
    from kafkapy.controller.controllership import Controllership
    from kafkapy.metadata.znodes import BrokerRegistration

logger = logging.getLogger("kafka.controller.FeatureControlManager")

NAME = "UpdateFeatures"
KINDS = frozenset(UpdateFeatureType) - {UpdateFeatureType.UNKNOWN}
_NOT_SUPPORTED = (0, 0)
FOR_ALL = "The update failed for all features since the following feature had an error: "


class FeatureUpdate(NamedTuple):
    """A feature, its wanted level, and the UpdateFeatureType as the request has it."""

    name: str
    level: int
    kind: int


async def run(
    controllership: Controllership, broker_id: int, updates: Iterable[FeatureUpdate], validate_only: bool
) -> int:
    """Finalize levels; returns the version of /feature that has them.

    INVALID_UPDATE_VERSION for the first update that is refused: then no level changes.
    """
    levels, epoch = await controllership.store.features()
    live = controllership.context.live_brokers
    wanted = changed_levels(levels, updates, broker_id, live)
    if validate_only or wanted == levels:
        return epoch
    epoch = await controllership.store.set_features(wanted, epoch)
    logger.info("The finalized features are %s with epoch %d", wanted, epoch)
    return epoch


async def run_with_zookeeper(
    controllership: Controllership, updates: Sequence[FeatureUpdate], validate_only: bool, all_or_none: bool
) -> tuple[dict[str, str], int]:
    """Remove finalized features; returns the refusals by name and the version of /feature.

    The refusal of an accepted removal is "". FEATURE_UPDATE_FAILED; with `all_or_none` INVALID_REQUEST for the first
    update that is refused: then no feature is removed.
    """
    levels, epoch = await controllership.store.features()
    refusals: dict[str, str] = {}
    wanted = dict(levels)
    async for update in in_slices(updates):
        refusals[update.name] = reason = _refusal_with_zookeeper(levels, update)
        if reason and all_or_none:
            raise error_for(ErrorCode.INVALID_REQUEST, FOR_ALL + reason)
        if not reason:
            wanted.pop(update.name, None)
    if wanted != levels and not validate_only:
        epoch = await controllership.store.set_features(wanted, epoch)
    return refusals, epoch


def _refusal_with_zookeeper(levels: Mapping[str, int], update: FeatureUpdate) -> str:
    """Why a ZooKeeper cluster refuses a change, in Kafka's words; "" for a removal."""
    name, level, kind = update
    if not name:
        return "Feature name can not be empty."
    if kind not in KINDS:
        return "Received unknown upgrade type."
    if level < 1 and kind != UpdateFeatureType.UPGRADE:
        return "" if name in levels else "Can not delete non-existing finalized feature."
    if level < 1:
        return (
            f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."


def changed_levels(
    levels: Mapping[str, int],
    updates: Iterable[FeatureUpdate],
    broker_id: int,
    brokers: Mapping[int, BrokerRegistration],
) -> dict[str, int]:
    """The levels after the updates; level 0 removes a feature. INVALID_UPDATE_VERSION."""
    wanted = dict(levels)
    for update in updates:
        reason = _refusal(levels, update, broker_id, brokers)
        if reason:
            logger.warning("%s", reason)
            raise error_for(ErrorCode.INVALID_UPDATE_VERSION, FOR_ALL + reason)
        if update.level:
            wanted[update.name] = update.level
        else:
            wanted.pop(update.name, None)
    return wanted


def _refusal(
    levels: Mapping[str, int], update: FeatureUpdate, broker_id: int, brokers: Mapping[int, BrokerRegistration]
) -> str:
    """Why the level cannot be finalized, in Kafka's words; "" when it can."""
    name, level, kind = update
    begin = f"Invalid update version {level} for feature {name}. "
    if kind not in KINDS:
        return f"{begin}The controller does not support the given upgrade type."
    if level < 0:
        return f"{begin}A feature version cannot be less than 0."
    reason = _unsupported(name, level, broker_id, brokers)
    if reason:
        return begin + reason
    current = levels.get(name, 0)
    if level < current and kind == UpdateFeatureType.UPGRADE:
        return (
            f"{begin}Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > current and kind != UpdateFeatureType.UPGRADE:
        return f"{begin}Can't downgrade to a newer version."
    if name == METADATA_VERSION and level < current and changes_metadata(current, level):
        return f"Unsupported metadata.version downgrade from {current} to {level}. " + (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == UpdateFeatureType.UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
    return "" if name in BY_NAME else f"{begin}Feature {name} not found."


def _unsupported(name: str, level: int, broker_id: int, brokers: Mapping[int, BrokerRegistration]) -> str:
    feature = BY_NAME.get(name)
    local = _NOT_SUPPORTED if feature is None else (feature.min_level, feature.max_level)
    reason = _outside(f"Local controller {broker_id}", local, level)
    for each in sorted(brokers.values()) if not reason else ():
        if each.id != broker_id:
            supported = next(((low, high) for known, low, high in each.features if known == name), _NOT_SUPPORTED)
            reason = reason or _outside(f"Broker {each.id}", supported, level)
    return reason


def _outside(who: str, supported: tuple[int, int], level: int) -> str:
    low, high = supported
    if low <= level <= high:
        return ""
    if high == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {low if low == high else f'{low}-{high}'}"
