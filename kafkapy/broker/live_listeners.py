"""Listeners and network threads of a running broker. Source: kafka.server.DynamicListenerConfig.

A dynamic change adds and removes listeners, changes advertised addresses, and resizes the pools of network threads. The
broker's registration follows: its addresses, and whether it is cordoned.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.store import MetadataStoreError
from kafkapy.network.listen_sockets import open_listen_socket
from kafkapy.network.socket_server import SocketServer, SocketServerConfig

if TYPE_CHECKING:
    from kafkapy.broker.parts.part import Broker
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.types import Endpoint

__all__ = ["LiveListeners"]

logger = logging.getLogger("kafka.server.DynamicListenerConfig")

ANSWER_S: Final = 5.0
"""Seconds that a removed listener's connections have for their requests in flight."""
RETRY_S: Final = 1.0
"""Pause in seconds before new addresses are registered again."""
LOOK_S: Final = 0.05
"""Pause in seconds between two looks at those connections."""


class LiveListeners:
    """Gives dynamic changes to the broker's listeners and network threads.

    Made by the broker; lives on the control loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._closing: asyncio.Task[None] | None = None
        self._retry: asyncio.Task[None] | None = None
        self._order = asyncio.Lock()

    def check(self, config: BrokerConfig) -> None:
        """INVALID_REQUEST when the running broker cannot take over these listeners."""
        old = self._broker.dynamic.config
        if (old.listeners, old.advertised_listeners, old.security_protocols) == (
            config.listeners,
            config.advertised_listeners,
            config.security_protocols,
        ):
            return
        before = _by_name(old.listeners)
        wanted = _by_name(config.listeners)
        for name in before.keys() & wanted.keys():
            if before[name].security_protocol is not wanted[name].security_protocol:
                raise _refused(f"Security protocol cannot be updated for existing listener {name}")
            if before[name] != wanted[name]:
                raise _refused(
                    f"Configs cannot be updated dynamically for existing listener {name}, restart broker or create a "
                    "new listener for update"
                )
        if config.inter_broker_listener_name != old.inter_broker_listener_name:
            raise _refused(
                f"Advertised listener must be specified for inter-broker listener {old.inter_broker_listener_name}"
            )
        freed = {each.port for name, each in before.items() if name not in wanted}
        for name in wanted.keys() - before.keys():
            self._broker.listener_security.check_listener(config, wanted[name])
            if wanted[name].port and wanted[name].port not in freed:
                _check_free(wanted[name])

    async def apply(self, config: BrokerConfig) -> None:
        """Open, close and resize. Errors are logged: what can be applied is."""
        async with self._order:
            broker = self._broker
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(None, broker.listener_security.update_listeners, config)
                await broker.logins.update_listeners(config)
            except KafkaError as error:
                logger.error("New listeners cannot be set up: %s", error)
                return
            server: SocketServer | None = getattr(broker, "socket_server", None)
            if server is None:
                return  # the broker has stopped meanwhile
            for failure in server.reconfigure(
                SocketServerConfig.from_broker_config(config, broker.listener_security.listeners)
            ):
                logger.error("The broker could not apply its new configuration: %s", failure)
            broker.logins.serve_scram(server)
            try:
                await self._register(config)
            except (KafkaError, MetadataStoreError) as failure:
                logger.error("The broker could not register its new addresses: %s", failure)
                if isinstance(failure, MetadataStoreError) and (self._retry is None or self._retry.done()):
                    self._retry = loop.create_task(self._register_again(), name="register-addresses")
            if server.close_removed(in_flight=False) and (self._closing is None or self._closing.done()):
                self._closing = loop.create_task(self._close_removed(), name="close-removed-listeners")

    async def stop(self) -> None:
        """Wait for no connection and no store any more."""
        tasks = [task for task in (self._closing, self._retry) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self, config: BrokerConfig) -> None:
        """Write the broker's registration with its new addresses, and whether it is cordoned."""
        broker = self._broker
        bound = broker.socket_server.bound_endpoints()
        advertised = config.advertise(bound)
        controller = broker.context.controller
        known = controller.registration
        if known is not None and (tuple(known.endpoints), known.cordoned) != (advertised, config.is_cordoned):
            await controller.update_registration(advertised, config.is_cordoned)

    async def _register_again(self) -> None:
        """Register the present addresses once the store answers."""
        while True:
            await asyncio.sleep(RETRY_S)
            async with self._order:
                try:
                    await self._register(self._broker.dynamic.config)
                    return
                except MetadataStoreError:
                    continue
                except Exception as error:
                    logger.error("The broker could not register its new addresses: %s", error)
                    return

    async def _close_removed(self) -> None:
        """Close connections of removed listeners, each after the answer to its request."""
        server = self._broker.socket_server
        deadline = time.monotonic() + ANSWER_S
        while server.close_removed(in_flight=time.monotonic() > deadline):
            await asyncio.sleep(LOOK_S)


def _by_name(endpoints: tuple[Endpoint, ...]) -> dict[str, Endpoint]:
    return {each.listener_name: each for each in endpoints}


def _refused(text: str) -> KafkaError:
    return error_for(ErrorCode.INVALID_REQUEST, text)


def _check_free(endpoint: Endpoint) -> None:
    """INVALID_REQUEST when the address of a listener cannot be bound."""
    try:
        open_listen_socket(endpoint, -1, 1).close()
    except OSError as error:
        where = f"{endpoint.host or '0.0.0.0'}:{endpoint.port}"
        raise _refused(f"Socket server failed to bind to {where}: {error}") from None
