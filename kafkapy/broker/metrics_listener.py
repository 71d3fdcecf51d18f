"""The HTTP listener that Prometheus scrapes.

It answers GET and HEAD of /metrics on each address of `metrics.listeners`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from kafkapy.broker.metric_samples import encode_in_slices
from kafkapy.errors import error_for

logger = logging.getLogger("kafka.metrics.PrometheusReporter")

SERVER_ERROR = -1
IDLE_S = 30
"""Seconds that the listener waits for the bytes of a client."""


class MetricsListener:
    """Owns the HTTP servers of the metrics.

    Each has separate threads, so that a scrape never waits for the control loop nor holds it. Started and stopped by
    KafkaServer. `setting` is what the addresses are called in errors.
    """

    def __init__(self, addresses: Iterable[str], *collectors: Collector, setting: str = "metrics.listeners") -> None:
        self._setting = setting
        self._addresses = list(addresses)
        self._registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._servers: list[ThreadingHTTPServer] = []

    @property
    def bound(self) -> list[tuple[str, int]]:
        """(host, port) of each listener; 0 is replaced by the taken port."""
        return [(str(server.server_address[0]), int(server.server_address[1])) for server in self._servers]

    def start(self) -> None:
        """Bind and serve. KafkaError with one sentence when an address cannot be bound."""
        registry = self._registry

        class Handler(BaseHTTPRequestHandler):
            timeout = IDLE_S

            def do_GET(self) -> None:
                if self.path.split("?", 1)[0] not in ("/", "/metrics"):
                    self.send_error(404)
                    return
                encode, content_type = choose_encoder(self.headers.get("Accept") or "")
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                if self.command == "HEAD":
                    self.end_headers()
                    return
                body = encode_in_slices(registry, encode)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                logger.debug(format, *args)

        for address in self._addresses:
            host, _, port = address.rpartition(":")
            host = host.strip("[]")

            class Server(ThreadingHTTPServer):
                daemon_threads = True
                address_family = AF_INET6 if ":" in host else AF_INET

                def handle_error(self, request: object, client_address: object) -> None:
                    logger.debug("A scrape from %s ended early", client_address, exc_info=True)

            try:
                server = Server((host, int(port)), Handler)
            except OSError as error:
                self.stop()
                raise error_for(
                    SERVER_ERROR, f"{self._setting}: {address} cannot be bound: {error.strerror or error}"
                ) from error
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, name="metrics-listener", daemon=True).start()
            logger.info("The metrics listener serves http://%s:%d/metrics", *self.bound[-1])

    def stop(self) -> None:
        """Close the listeners."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()
