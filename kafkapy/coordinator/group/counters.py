"""The group coordinator's counters, for metrics.

Source: the sensors of GroupCoordinatorMetrics.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounters:
    """Totals since the start over all shards, also unloaded ones.

    Owned by the GroupCoordinator; counted on the control loop, read on any thread.
    """

    consumer_rebalances: int = 0
    """Epochs that consumer groups have begun."""
    share_rebalances: int = 0
    """Epochs that share groups have begun."""
    completed_rebalances: int = 0
    """Generations in which classic groups have become stable."""
    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    """Offsets that OffsetDelete removed."""
