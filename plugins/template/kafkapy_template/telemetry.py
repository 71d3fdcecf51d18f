"""A receiver of clients' metrics: it counts them by client and writes the first push of each into the log."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkapy.broker.client_telemetry.instances import Client
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger(__name__)


class CountingReceiver:
    """Owns the counts. The broker calls `receive` on its telemetry thread; any thread reads."""

    def __init__(self, config: BrokerConfig) -> None:
        del config  # the place of keys of the plugin's own
        self._lock = threading.Lock()
        self.metrics: Counter[str] = Counter()

    def receive(self, client: Client, metrics: Any) -> None:
        """Count a push. An exception here would make the client's error INVALID_RECORD."""
        number = sum(
            len(scope.metrics) for resource in metrics.resource_metrics for scope in resource.scope_metrics
        )
        with self._lock:
            if client.client_id not in self.metrics:
                logger.info("Client %s (%s) pushes %d metrics", client.client_id, client.software_name, number)
            self.metrics[client.client_id] += number

    def close(self) -> None:
        """The broker stops."""
