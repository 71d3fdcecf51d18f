"""Request log lines for Produce and Fetch, which the data plane serves.

Each request is one event, only while kafka.request.logger wants it.

At DEBUG a line says what was asked and how long it took, as for other requests (apis.py); at TRACE it has the decoded
request too, unless its body is large. Under load some are dropped (EventQueue.dropped counts them) rather than held in
memory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final

from kafkapy._speedups.network.request_log import LAYOUT
from kafkapy._speedups.protocol.codec import DecodeError
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy.broker import loggers
from kafkapy.protocol.registry import api

request_logger = logging.getLogger("kafka.request.logger")

OFF: Final = 0
REQUESTS: Final = 1
BODIES: Final = 2
ANONYMOUS: Final = "User:ANONYMOUS"


class DataPlaneRequests:
    """Writes the log lines. Owned by KafkaServer; on the control loop.

    It tells the data plane whether any are wanted.
    """

    def __init__(self, plane: DataPlane, listener_names: Sequence[str]) -> None:
        self._plane = plane
        self._listener_names = listener_names

    def start(self) -> None:
        """Follow the logger's level from now on."""
        loggers.on_change.append(self.update_level)
        self.update_level()

    def stop(self) -> None:
        """The data plane says nothing any more."""
        with contextlib.suppress(ValueError):
            loggers.on_change.remove(self.update_level)
        self._plane.request_log_level = OFF

    def update_level(self) -> None:
        """Read the logger's level again. Any thread.

        It may change by another way than AlterConfigs.
        """
        if request_logger.isEnabledFor(loggers.LEVELS["TRACE"]):
            self._plane.request_log_level = BODIES
        else:
            self._plane.request_log_level = REQUESTS if request_logger.isEnabledFor(logging.DEBUG) else OFF

    def log(self, connection: int, _argument: int, text: bytes) -> None:
        """One request, as _speedups/network/request_log.pxd lays it out."""
        (
            key,
            version,
            correlation,
            listener,
            request_bytes,
            response_bytes,
            local_ns,
            remote_ns,
            total_ns,
            body_size,
            client_size,
            host_size,
            principal_size,
            copied,
        ) = LAYOUT.unpack_from(text)
        parts = []
        at = LAYOUT.size
        for size in (max(client_size, 0), host_size, principal_size, max(copied, 0)):
            parts.append(text[at : at + size])
            at += size
        client, host, principal, body = parts
        extra: dict[str, Any] = {
            "api": api(key).request.NAME.removesuffix("Request"),
            "version": version,
            "correlation": correlation,
            "client": None if client_size < 0 else client.decode("utf-8", "replace"),
            "connection": connection,
            "address": host.decode(),
            "listener": self._listener_names[listener],
            "principal": principal.decode("utf-8", "replace") or ANONYMOUS,
            "request_bytes": request_bytes,
            "response_bytes": response_bytes,
            "local_ms": f"{local_ns / 1e6:.3f}",
            "remote_ms": f"{remote_ns / 1e6:.3f}",
            "total_ms": f"{total_ns / 1e6:.3f}",
        }
        if request_logger.isEnabledFor(loggers.LEVELS["TRACE"]):
            extra["request"] = _decoded(key, version, body) if copied >= 0 else f"{body_size} bytes, not decoded"
        request_logger.debug("Completed request", extra=extra)


def _decoded(key: int, version: int, body: bytes) -> Any:
    """The message. Produce bodies are as they were appended: with the batches' offsets and leader epochs filled in."""
    try:
        return api(key).request.decode(body, version)
    except DecodeError as error:
        return f"{len(body)} bytes, {error}"
