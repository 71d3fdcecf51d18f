"""The Apache Kafka release of a broker: kafka-python's `config["api_version"]`.

Each release is recognized by one API version that the previous release did not serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkapy.protocol.registry import ApiKeys

__all__ = ["broker_version"]

OLDEST: Final = (2, 1)
"""The oldest release that these clients support."""

BROUGHT: Final = (
    ((4, 3), ApiKeys.DESCRIBE_LOG_DIRS, 5),
    ((4, 2), ApiKeys.LIST_OFFSETS, 11),
    ((4, 1), ApiKeys.PRODUCE, 13),
    ((4, 0), ApiKeys.LIST_OFFSETS, 10),
    ((3, 9), ApiKeys.FETCH, 17),
    ((3, 8), ApiKeys.PRODUCE, 11),
    ((3, 7), ApiKeys.FETCH, 16),
    ((3, 6), ApiKeys.ADD_PARTITIONS_TO_TXN, 4),
    ((3, 5), ApiKeys.FETCH, 15),
    ((3, 4), ApiKeys.LEADER_AND_ISR, 7),
    ((3, 3), ApiKeys.DESCRIBE_ACLS, 3),
    ((3, 2), ApiKeys.JOIN_GROUP, 9),
    ((3, 1), ApiKeys.FETCH, 13),
    ((3, 0), ApiKeys.LIST_OFFSETS, 7),
    ((2, 8), ApiKeys.PRODUCE, 9),
    ((2, 7), ApiKeys.FETCH, 12),
    ((2, 6), ApiKeys.DESCRIBE_CLIENT_QUOTAS, 0),
    ((2, 5), ApiKeys.DESCRIBE_ACLS, 2),
    ((2, 4), ApiKeys.PRODUCE, 8),
    ((2, 3), ApiKeys.FETCH, 11),
    ((2, 2), ApiKeys.LIST_OFFSETS, 5),
)
"""Newest first."""


def broker_version(api_versions: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
    """The newest release whose API version a broker serves.

    `api_versions` is {api key: (oldest, newest version)}.
    """
    for release, api_key, version in BROUGHT:
        oldest, newest = api_versions.get(api_key, (1, 0))
        if oldest <= version <= newest:
            return release
    return OLDEST
