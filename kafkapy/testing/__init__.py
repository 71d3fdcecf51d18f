"""Brokers for tests of kafkapy and of programs that use it.

with kafkapy.testing.Broker() as broker:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

`kafkapy.testing.Cluster(3)` is a cluster of three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.testing.broker import Broker
    from kafkapy.testing.broker_process import BrokerFailedError, BrokerProcess
    from kafkapy.testing.cluster import Cluster

__all__ = ["Broker", "BrokerFailedError", "BrokerProcess", "Cluster"]


def __getattr__(name: str) -> object:
    # Late, because pytest imports this package for its plugin in every project where kafkapy is installed.
    if name == "Broker":
        from kafkapy.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from kafkapy.testing.cluster import Cluster

        return Cluster
    if name in ("BrokerFailedError", "BrokerProcess"):
        from kafkapy.testing import broker_process

        return getattr(broker_process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
