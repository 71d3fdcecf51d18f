"""The readers of a broker's numbers: the Prometheus listener and plugins' reporters."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafkapy.broker.parts.part import Broker, Part
from kafkapy.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from kafkapy.config.broker import BrokerConfig

__all__ = ["Metrics"]

logger = logging.getLogger("kafka.server.KafkaServer")


class Metrics(Part):
    """Owns the metrics listener and the reporters.

    Nothing of it is imported where neither is configured.
    """

    name = "metrics listener"

    def __init__(self) -> None:
        self._reporters: dict[str, Any] = {}
        self._collectors: list[Collector] = []

    async def start(self, broker: Broker) -> None:
        """Start the reporters, then bind the listener. OSError when its port is taken."""
        addresses = broker.config.get_list("metrics.listeners")
        for name in broker.plugins.metrics_reporter_names(broker.config):
            self._start_reporter(broker, name)
        if addresses:
            from kafkapy.broker.metrics_listener import MetricsListener

            broker.metrics_listener = MetricsListener(addresses, *self._collected(broker))
            broker.metrics_listener.start()
        broker.dynamic.broker_checks.append(lambda config: self._check(broker, config))
        broker.dynamic.broker_listeners.append(lambda config: self._follow(broker, config))

    def _collected(self, broker: Broker) -> list[Collector]:
        if not self._collectors:
            from kafkapy.broker.metrics import BrokerCollector

            broker.context.coordinators.make_all()  # collectors are called on threads of their own
            telemetry = broker.context.telemetry
            self._collectors = [BrokerCollector(broker), *([] if telemetry is None else [telemetry.series])]
        return self._collectors

    def _start_reporter(self, broker: Broker, name: str) -> None:
        reporter = broker.plugins.create_metrics_reporter(name, broker.config)
        reporter.start(list(self._collected(broker)))
        self._reporters[name] = reporter

    @staticmethod
    def _check(broker: Broker, config: BrokerConfig) -> None:
        """ConfigError when metric.reporters names an unknown reporter."""
        broker.plugins.metrics_reporter_names(config)

    def _follow(self, broker: Broker, config: BrokerConfig) -> None:
        """Start and close reporters as metric.reporters says now."""
        try:
            names = broker.plugins.metrics_reporter_names(config)
        except ConfigError as error:  # of all brokers, where another one has the plugin
            logger.error("The metrics reporters stay as they are: %s", error)
            return
        for name in self._reporters.keys() - set(names):
            _close(self._reporters.pop(name))
        for name in names:
            if name not in self._reporters:
                try:
                    self._start_reporter(broker, name)
                except Exception:  # a reporter is a plugin's: the broker goes on without it
                    logger.exception("The metrics reporter %s failed to start", name)

    async def stop(self, broker: Broker) -> None:
        """Stop answering scrapes; then close the reporters.

        A reporter that fails does not keep another one from being closed.
        """
        try:
            if broker.metrics_listener is not None:
                broker.metrics_listener.stop()
        finally:
            while self._reporters:
                _close(self._reporters.popitem()[1])


def _close(reporter: Any) -> None:
    try:
        reporter.close()
    except Exception:
        logger.exception("A metrics reporter failed to close")
