"""The metrics of share partitions and share sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_NAMES: Final = {
    "kafka_server_sharesessioncache_sharesessionscount": "sessions",
    "kafka_server_sharesessioncache_sharepartitionscount": "session_partitions",
    "kafka_server_sharesessioncache_sharesessionevictions": "evictions",
    "kafka_server_sharegroupmetrics_shareacknowledgement": "acknowledgements",
    "kafkapy_sharepartitions_count": "share_partitions",
    "kafkapy_sharepartitions_acquiredrecords": "acquired",
    "kafkapy_sharepartitions_loads": "loads",
    "kafkapy_sharepartitions_loadfailures": "load_failures",
    "kafkapy_sharepartitions_writes": "writes",
    "kafkapy_sharepartitions_leasedwrites": "leased_writes",
    "kafkapy_sharepartitions_writefailures": "write_failures",
    "kafkapy_sharepartitions_timeouts": "expired",
}
_TYPES: Final = ("gap", "accept", "release", "reject", "renew")


def add_shares(add: Callable[..., None], counters: Mapping[str, Any]) -> None:
    """Add ShareTable.counters."""
    for name, counter in _NAMES.items():
        add(name, counters[counter])
    for kind, count in zip(_TYPES, counters["acknowledged"], strict=True):
        add("kafka_server_sharegroupmetrics_recordacknowledgement", count, kind)
