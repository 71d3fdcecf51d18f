"""A plugin with a metadata store that says of itself that it has other brokers, and has none.

A broker on it serves the APIs between brokers, as one of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.metadata.store import MetadataStore
from kafkapy.plugins import hookimpl


@hookimpl
def register_metadata_stores() -> Mapping[str, Callable[[BrokerConfig], MetadataStore]]:
    return {"shared-alone": lambda _config: MemoryStore(MemoryTree())}
