"""The broker's shares of the limit of open files.

    limit (ulimit -n)  =  reserve  +  segment files  +  connections

The reserve is for everything else: listeners, the metadata store, checkpoints, indexes, modules that are imported late.
So connections never keep a log from being written, and logs never keep clients out.
"""

from __future__ import annotations

import logging
import resource
from typing import Final, NamedTuple

from kafkapy._speedups.log.open_files import set_limit
from kafkapy.config.config_def import MAX_INT

logger = logging.getLogger("kafka.server.KafkaServer")

LEAST_RESERVE: Final = 96
MOST_RESERVE: Final = 1024
RESERVED_SHARE: Final = 16
"""One descriptor of so many is kept in reserve, within the two bounds."""


class DescriptorBudget(NamedTuple):
    """How many descriptors each part may have. Immutable."""

    limit: int
    reserve: int
    segment_files: int
    connections: int

    @classmethod
    def of(cls, limit: int) -> DescriptorBudget:
        """The shares of a limit of open files.

        Half of the limit without the reserve is for connections.
        """
        reserve = min(max(LEAST_RESERVE, limit // RESERVED_SHARE), MOST_RESERVE, limit // 2)
        connections = max((limit - reserve) // 2, 1)
        return cls(limit, reserve, max(limit - reserve - connections, 1), connections)


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one.

    Only for a program that is nothing but the broker.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("The limit of open files stays at %d: %s", soft, error)
        return
    logger.info("The broker raised its limit of open files from %s to %s", _shown(soft), _shown(hard))


def claim() -> DescriptorBudget:
    """The budget of this process, with the limit of segment files in force."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    budget = DescriptorBudget.of(MAX_INT if soft == resource.RLIM_INFINITY else soft)
    set_limit(budget.segment_files, budget.reserve // 4)
    return budget


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
