"""The channels from this broker's controller to all brokers.

This broker's own channel is a call on the control loop. Others are reached on `control.plane.listener.name`, or on the
inter-broker listener without that key. Source: kafka.controller.ControllerChannelManager.addNewBroker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkapy.broker.inter_broker import InterBrokerClient
from kafkapy.config.broker import BrokerConfig
from kafkapy.controller.broker_channel import BrokerChannel, BrokerRequestHandler, LocalBrokerChannel
from kafkapy.controller.remote_channel import RemoteBrokerChannel
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.types import Endpoint

__all__ = ["ControllerChannels"]


class ControllerChannels:
    """Owns the controller's connections to other brokers; a ChannelFactory.

    Made by the broker; used on the control loop. `live_brokers` gives the controller's registrations, which are newer
    than the metadata cache when a broker has just started.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        version: MetadataVersion,
        handler: BrokerRequestHandler,
        live_brokers: Callable[[], Mapping[int, BrokerRegistration]],
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._version = version
        self._handler = handler
        self._live_brokers = live_brokers
        self._listener = config.inter_broker_listener_name
        self._target = config.control_plane_listener_name or self._listener
        self._client: InterBrokerClient | None = None

    def __call__(self, broker: BrokerRegistration) -> BrokerChannel:
        """The channel to a registered broker."""
        if broker.id == self._broker_id:
            return LocalBrokerChannel(self._handler)
        if self._client is None:  # a cluster of one broker needs none
            self._client = InterBrokerClient(
                self._config, self._broker_id, "controller", self._endpoint_of, listener_name=self._target
            )
        return RemoteBrokerChannel(broker.id, self._client, self._version, self._listener)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()

    def _endpoint_of(self, broker_id: int) -> Endpoint | None:
        broker = self._live_brokers().get(broker_id)
        return None if broker is None else broker.endpoint(self._target)
