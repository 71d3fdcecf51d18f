"""The checks before a broker registers: nobody else has its id or addresses.

Source: kafka.server.KafkaServer.validateAdvertisedListeners, kafka.zk.KafkaZkClient.registerBroker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kafkapy import errors
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.metadata.znodes import BrokerRegistration

logger = logging.getLogger("kafka.server.KafkaServer")

LOOK_S: Final = 0.2
"""The pause in seconds between two looks at a registration that is about to end."""
SESSIONS: Final = 2
"""So many session timeouts a start waits for a silent store, and for the end of this broker's earlier session."""

T = TypeVar("T")


def taken(broker_id: int) -> errors.KafkaError:
    """The error when another process is registered with the id."""
    return errors.DuplicateBrokerRegistrationError(
        f"a broker with id {broker_id} is registered already; broker.id must be unique in the cluster"
    )


async def check_addresses(store: ControllerStore, registration: BrokerRegistration) -> None:
    """Check that no other broker advertises an address of this one; DUPLICATE_BROKER_REGISTRATION."""
    own = {(endpoint.host, endpoint.port) for endpoint in registration.endpoints}
    others = [each for each in await store.broker_ids() if each != registration.id]
    for other, found in (await store.registrations(others)).items():
        for endpoint in found.endpoints:
            if (endpoint.host, endpoint.port) in own:
                raise errors.DuplicateBrokerRegistrationError(
                    f"{endpoint.host}:{endpoint.port} in advertised.listeners is the address of broker {other}, "
                    "which is registered already"
                )


async def wait_for_earlier_life(store: ControllerStore, registration: BrokerRegistration) -> None:
    """Wait until the registration of this broker's earlier process has ended.

    A process that was killed stays registered until its session ends. It is this broker's when it has the addresses
    that this process listens on now; DUPLICATE_BROKER_REGISTRATION at once for another one, and after two session
    timeouts.
    """
    deadline = time.monotonic() + SESSIONS * store.store.session_timeout_s
    said = False
    while (found := await _read(store, registration.id)) is not None:
        if found.endpoints != registration.endpoints or time.monotonic() > deadline:
            raise taken(registration.id)
        if not said:
            logger.info("The start waits for the end of this broker's earlier session, which was not closed")
            said = True
        await asyncio.sleep(LOOK_S)


async def patiently(store: ControllerStore, step: Callable[[], Awaitable[T]]) -> T:
    """Run a step of the start, again while the store does not answer.

    It returns the step's result. StoreUnavailableError after two session timeouts; at once without sessions.
    """
    deadline = time.monotonic() + SESSIONS * store.store.session_timeout_s
    while True:
        try:
            return await step()
        except StoreUnavailableError as error:
            if time.monotonic() >= deadline:
                raise
            logger.warning("The start is interrupted; the broker tries again: %s", error)
            await asyncio.sleep(LOOK_S)


async def _read(store: ControllerStore, broker_id: int) -> BrokerRegistration | None:
    """A broker's registration; one that cannot be read has no addresses."""
    try:
        return await store.registration(broker_id)
    except ValueError:
        return BrokerRegistration(broker_id, ())
