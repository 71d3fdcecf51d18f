"""A broker as a client of other brokers: its connections, and their configuration.

The keys are those of the inter-broker listener (`inter.broker.listener.name` or `security.inter.broker.protocol`): its
keystore and truststore, `sasl.mechanism.inter.broker.protocol`, and the options `username` and `password` (or those of
the mechanism) in the listener's `sasl.jaas.config` of that mechanism. Source:
org.apache.kafka.common.network.ChannelBuilders.clientChannelBuilder, kafka.common.InterBrokerSendThread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.connections import Connections, EncodedRequest
from kafkapy.clients.metrics import ClientMetrics
from kafkapy.clients.network_client import RequestOf
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.client_security import KEYS
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import KafkaConnectionError, UnsupportedVersionError
from kafkapy.metadata.cache import MetadataCache
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request
from kafkapy.types import Endpoint

__all__ = ["EndpointOf", "InterBrokerClient", "endpoints_of", "inter_broker_client_config"]

MECHANISM: Final = "sasl.mechanism"
RECONNECT_BACKOFF_MS: Final = 50
"""The pause before another attempt to connect, as in Kafka constant: a restarted broker is found at once."""

SAMPLES: Final = (2, 30.0)
"""Number and seconds of the samples of a connection's metrics, as clients have them."""

EndpointOf = Callable[[int], Endpoint | None]
"""The address of a broker by its id; None for a broker that is not known."""


def endpoints_of(cache: MetadataCache, listener_name: str) -> EndpointOf:
    """The brokers' addresses on a listener, read from the metadata cache at each connect."""
    return lambda broker_id: cache.endpoint(broker_id, listener_name)


class InterBrokerClient:
    """Sends requests to other brokers, over one connection to each.

    One instance for each purpose (the controller's requests, ISR changes, transaction markers...), so that one does not
    wait behind another. A connection opens with the first request, and again after it was lost. Used on the control
    loop. An InterBrokerSender.
    """

    NOWHERE: ClassVar = "127.0.0.1:9092"
    """A bootstrap server for a configuration; addresses are those of `endpoint_of`, so it is not used."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        purpose: str,
        endpoint_of: EndpointOf,
        *,
        listener_name: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """`purpose` ends the client id, "broker-<id>-<purpose>".

        `listener_name`: the listener of the other brokers, default the inter-broker listener. `timeout_ms`: of a
        request, default controller.socket.timeout.ms.
        """
        self._endpoint_of = endpoint_of
        self._client_id = f"broker-{broker_id}-{purpose}"
        self._client_config = inter_broker_client_config(config, [self.NOWHERE], listener_name).replaced(
            **{
                "request.timeout.ms": timeout_ms or config.get_int("controller.socket.timeout.ms"),
                "reconnect.backoff.ms": RECONNECT_BACKOFF_MS,
                "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MS,
                "connections.max.idle.ms": config.get_int("connections.max.idle.ms"),
            }
        )
        self._made: Connections | None = None
        self._closed = False

    @property
    def _connections(self) -> Connections:
        """The connections; the first one asked for begins their thread."""
        if self._closed:
            raise KafkaConnectionError("the broker is stopping")
        if self._made is None:
            self._made = Connections(
                self._client_config, self._client_id, ClientMetrics(*SAMPLES), self._node, lambda node_id: None
            )
        return self._made

    async def send(
        self,
        broker_id: int,
        request: Request | RequestOf | EncodedRequest,
        *,
        timeout_ms: int | None = None,
        version: int | None = None,
    ) -> Any:
        """The decoded response, in `version` or the newest version that both sides support.

        Connects if necessary. Requests to one broker leave in the order of the calls while its connection lasts.

        KafkaConnectionError: no connection, or it was lost; RequestTimedOutError: no response in time, the connection
        closes; NodeNotReadyError: a lost connection's back-off of 50 ms is not over; AuthenticationError;
        UnsupportedVersionError; StaleMetadataError: unknown broker; KafkaProtocolError: an invalid response. The caller
        checks the error codes in the response.
        """
        connection = self._connections.by_node.get(broker_id)
        if connection is None or not connection.is_ready(time.monotonic()):
            connection = await self._connections.ready(broker_id)
        kind = request if isinstance(request, Request) else request.kind
        low, high = (kind.VERSIONS.low, kind.VERSIONS.high) if version is None else (version, version)
        served = connection.api_versions.get(kind.API_KEY)
        if served is None or min(high, served[1]) < max(low, served[0]):
            serves = f"versions {served[0]} to {served[1]}" if served else "no version"
            raise UnsupportedVersionError(
                f"{ApiKeys(kind.API_KEY).title} is needed in versions {low} to {high}, but {connection} serves {serves}"
            )
        chosen = min(high, served[1])
        if isinstance(request, RequestOf):
            request = request.build(chosen)
        return await self._connections.round_trip(connection, request, chosen, timeout_ms)

    def disconnect(self, broker_id: int) -> None:
        """Close the connection to a broker, which has gone or has started again.

        Requests in flight fail with KafkaConnectionError.
        """
        if self._made is not None and broker_id in self._made.by_node:
            self._made.forget(broker_id)

    async def close(self) -> None:
        """Close all connections. A second call does nothing.

        Requests in flight fail with KafkaConnectionError.
        """
        self._closed = True
        if self._made is None or self._made.closed:
            return
        tasks = self._made.cancel()
        self._made.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._made.close_security()

    def _node(self, broker_id: int) -> BrokerNode | None:
        endpoint = self._endpoint_of(broker_id)
        return None if endpoint is None else BrokerNode(broker_id, endpoint.host, endpoint.port)


def inter_broker_client_config(
    config: BrokerConfig, servers: Iterable[str], listener_name: str | None = None
) -> ClientConfig:
    """The configuration of a client that connects to other brokers as this broker.

    `servers` are addresses of their inter-broker listeners, or of the listener `listener_name`. ConfigError for
    contradicting keys.
    """
    listener = listener_name or config.inter_broker_listener_name
    protocol = config.security_protocols[listener]
    values: dict[str, Any] = {
        "bootstrap.servers": list(servers),
        "client.id": f"broker-{config.broker_id}-to-brokers",
        "security.protocol": protocol.name,
    }
    mechanism = None
    if protocol.sasl:
        mechanism = config.get_str("sasl.mechanism.inter.broker.protocol")
        values[MECHANISM] = mechanism
    prefix = f"listener.name.{listener.lower()}."
    for key in KEYS:
        if key.name == MECHANISM or key.name not in config:
            continue
        names = [prefix + key.name, key.name]
        if mechanism is not None:
            names.insert(0, f"{prefix}{mechanism.lower()}.{key.name}")
        if any(config.is_set(name) for name in names):
            values[key.name] = config.for_listener(listener, key.name, mechanism)
    return ClientConfig(COMMON, values)
