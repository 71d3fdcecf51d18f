"""The simulated network: messages between brokers and clients that are late, lost, or out of order.

A link leads one way. A message on a link that is cut is lost, and its sender hears nothing. Requests of one connection
keep their order because each has one request in flight; everything else overtakes everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from simulation.clock import LIFE, NOBODY, Life, VirtualLoop

from kafkapy.clients.connections import EncodedRequest
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import ErrorCode, KafkaConnectionError, KafkaError, code_of
from kafkapy.metadata.store import MetadataStoreError
from kafkapy.protocol.schema import Request

if TYPE_CHECKING:
    from simulation.broker import SimulatedBroker

CLIENTS: Final = -1
"""The place of all clients."""
TIMEOUT_S: Final = 2.0
"""When a request without an answer has failed for its sender."""
LONGEST_DELAY_S: Final = 3 * TIMEOUT_S
"""The delay of the latest of late messages."""


class Network:
    """The links between brokers. `loss` and `delay` hold for all of them."""

    def __init__(self, loop: VirtualLoop, dice: random.Random) -> None:
        self.loop = loop
        self.dice = dice
        self.delay_s = 0.001
        """The longest delay of a message; the shortest is a tenth of it."""
        self.loss = 0.0
        """The part of messages that are lost."""
        self.late = 0.0
        """The part of messages that arrive after their sender has given up, and perhaps sent another one."""
        self.cut: set[tuple[int, int]] = set()
        """Links, each from a broker to a broker, that lose everything."""
        self.brokers: dict[int, SimulatedBroker] = {}
        self.failures: list[Exception] = []
        """What handlers have raised that has no error code."""
        self.drop: Callable[[int, int, object], bool] = lambda source, target, message: False
        """A test's own loss: whether this message is lost."""

    def isolate(self, *brokers: int) -> None:
        """Cut brokers from all others, both ways; clients still reach them."""
        for one in brokers:
            for other in self.brokers:
                if other not in brokers:
                    self.cut |= {(one, other), (other, one)}

    def heal(self) -> None:
        """Every link works."""
        self.cut.clear()
        self.loss = self.late = 0.0

    def delay(self) -> float:
        """The delay of the next message."""
        if self.late > 0 and self.dice.random() < self.late:
            return TIMEOUT_S + (LONGEST_DELAY_S - TIMEOUT_S) * self.dice.random()
        return self.delay_s * (0.1 + 0.9 * self.dice.random())

    def loses(self, source: int, target: int, message: object) -> bool:
        """Whether a message is lost on its way."""
        if (source, target) in self.cut or self.drop(source, target, message):
            return True
        return self.loss > 0 and self.dice.random() < self.loss

    def post(
        self, source: int, target: int, message: object, deliver: Callable[[], object], life: Life, context: Context
    ) -> None:
        """Deliver a message some time later in the receiver's context, unless it is lost or the receiver dies."""
        if self.loses(source, target, message):
            return

        def arrive() -> None:
            if life.alive:
                deliver()

        self.loop.call_later(self.delay(), arrive, context=context)

    async def call(self, source: int, target: int, request: Request, version: int, timeout_s: float) -> Any:
        """A request to a broker's control plane and its response. KafkaConnectionError when either is lost."""
        life, context = self._here()
        life.sent = number = life.sent + 1
        answer: asyncio.Future[Any] = self.loop.create_future()
        broker = self.brokers.get(target)
        if broker is not None and broker.life.alive:
            receiver, there = broker.life, broker.context

            def answered(outcome: Any) -> None:
                def arrive() -> None:
                    if not answer.done():
                        if isinstance(outcome, BaseException):
                            answer.set_exception(outcome)
                        else:
                            answer.set_result(outcome)

                self.post(target, source, outcome, arrive, life, context)

            def arrived() -> None:
                assert broker is not None
                task = self.loop.create_task(self._served(broker, request, version, number))
                task.add_done_callback(lambda done: answered(done.exception() or done.result()), context=there)

            self.post(source, target, request, arrived, receiver, there)
        else:
            # A connection to a closed port is refused.
            timeout_s = 2 * self.delay_s
        timer = self.loop.call_later(timeout_s, _fail, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    async def _served(self, broker: SimulatedBroker, request: Request, version: int, number: int) -> Any:
        try:
            return await broker.serve(request, version, number)
        except Exception as error:
            if not isinstance(error, (KafkaError, MetadataStoreError)):
                self.failures.append(error)
            return _WholeError(code_of(error))  # as the dispatcher does

    @staticmethod
    def _here() -> tuple[Life, Context]:
        context = copy_context()
        return context.get(LIFE, NOBODY), context


class _WholeError:
    """A response that is nothing but an error."""

    def __init__(self, code: ErrorCode) -> None:
        self.error_code = int(code)
        self.topics: list[Any] = []
        self.partition_errors: list[Any] = []


def _fail(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(KafkaConnectionError("the connection was lost"))


class SimulatedSender:
    """An InterBrokerSender over the simulated network."""

    def __init__(self, network: Network, broker_id: int) -> None:
        self._network = network
        self._broker_id = broker_id

    async def send(
        self,
        broker_id: int,
        request: Request | RequestOf | EncodedRequest,
        *,
        timeout_ms: int | None = None,
        version: int | None = None,
    ) -> Any:
        """See InterBrokerSender."""
        kind = type(request) if isinstance(request, Request) else request.kind
        version = kind.VERSIONS.high if version is None else version
        if isinstance(request, RequestOf):
            made = request.build(version)
        elif isinstance(request, EncodedRequest):
            made = kind.decode(request.body, version)
        else:
            made = request
        timeout_s = TIMEOUT_S if timeout_ms is None else timeout_ms / 1000
        return await self._network.call(self._broker_id, broker_id, made, version, timeout_s)

    def disconnect(self, broker_id: int) -> None:
        """There are no connections."""

    async def close(self) -> None:
        """There are no connections."""
