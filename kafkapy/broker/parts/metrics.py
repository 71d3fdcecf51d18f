"""The readers of a broker's numbers: the Prometheus listener and plugins' reporters."""

from __future__ import annotations

import logging
from typing import Any

from kafkapy.broker.parts.part import Broker, Part

__all__ = ["Metrics"]

logger = logging.getLogger("kafka.server.KafkaServer")


class Metrics(Part):
    """Owns the metrics listener and the reporters.

    Nothing of it is imported where neither is configured.
    """

    name = "metrics listener"

    def __init__(self) -> None:
        self._reporters: list[Any] = []

    async def start(self, broker: Broker) -> None:
        """Start the reporters, then bind the listener. OSError when its port is taken."""
        addresses = broker.config.get_list("metrics.listeners")
        reporters = broker.plugins.create_metrics_reporters(broker.config)
        if not addresses and not reporters:
            return
        from kafkapy.broker.metrics import BrokerCollector

        broker.context.coordinators.make_all()  # collectors are called on threads of their own
        telemetry = broker.context.telemetry
        collectors = [BrokerCollector(broker), *([] if telemetry is None else [telemetry.series])]
        for reporter in reporters:
            reporter.start(collectors)
            self._reporters.append(reporter)
        if addresses:
            from kafkapy.broker.metrics_listener import MetricsListener

            broker.metrics_listener = MetricsListener(addresses, *collectors)
            broker.metrics_listener.start()

    async def stop(self, broker: Broker) -> None:
        """Stop answering scrapes; then close the reporters.

        A reporter that fails does not keep another one from being closed.
        """
        try:
            if broker.metrics_listener is not None:
                broker.metrics_listener.stop()
        finally:
            while self._reporters:
                try:
                    self._reporters.pop().close()
                except Exception:
                    logger.exception("A metrics reporter failed to close")
