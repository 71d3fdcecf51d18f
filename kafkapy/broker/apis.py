"""KafkaApis: from a request frame to its reply. Source: kafka.server.KafkaApis and kafka.network.SocketServer.

`handlers.SERVED` is the dispatch table, and what ApiVersions says. Produce and Fetch are served by the data plane and
only show up here in ApiVersions.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy.broker.context import BrokerContext, RequestContext
from kafkapy.broker.handlers import SERVED
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError, EncodeError, Request, Response

if TYPE_CHECKING:
    from kafkapy._speedups.network_request import NetworkRequest

logger = logging.getLogger("kafka.server.KafkaApis")
request_logger = logging.getLogger("kafka.request.logger")
TRACE: Final = 5
DRAIN_LOOK_S: Final = 0.005


class Handler(Protocol):
    """What a module in `handlers/` declares; `error_response` and `TRAILING_BYTES` (bytes behind the request's last
    field are overlooked, not a reason to close the connection) are optional.
    """

    REQUEST: type[Request]
    RESPONSE: type[Response]

    def handle(self, context: RequestContext, request: Any) -> Coroutine[Any, Any, Response] | Later[Response]:
        """Answer one request. An `async def`, or a function that gives a Later: without a task, which is what most of
        the time of a small request goes to.
        """


class KafkaApis:
    """Owns the dispatch table. Made by KafkaServer; `dispatch` is called on the control loop for every request the
    data plane does not serve itself, and never raises.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self.broker = broker
        self._handlers: dict[int, Handler] = {}
        self._exact: dict[int, bool] = {}
        """Whether bytes behind the last field are a reason to close the connection, by API key."""
        self._in_flight: set[_Serving] = set()

    def handler(self, key: int) -> Handler:
        """The module that serves an API of `SERVED`, imported when it is first asked for."""
        handler = self._handlers.get(key)
        if handler is None:
            module: Any = importlib.import_module(f"kafkapy.broker.handlers.{ApiKeys(key).module}")
            handler = self._handlers[key] = module
            self._exact[key] = not getattr(module, "TRAILING_BYTES", False)
        return handler

    def dispatch(self, request: NetworkRequest) -> None:
        """Serve one request: reply to it now, see to it that it will be, or close its connection."""
        key, version = request.api_key, request.api_version
        served = SERVED.get(key)
        if served is None:
            request.close(f"API key {key} is not served")
            return
        try:
            handler = self.handler(key)
        except Exception:  # whatever keeps a module from being imported must not keep other requests from being served
            logger.exception("What serves API key %d cannot be imported", key)
            request.close(f"API key {key} cannot be served")
            return
        unsupported = not served.low <= version <= served.high
        if unsupported and key != ApiKeys.API_VERSIONS:
            request.close(f"{handler.REQUEST.NAME} version {version} is not served, only {served.versions}")
            return
        context = RequestContext(self.broker, request)
        if unsupported:
            # The client does not know yet what this broker serves: answered in version 0, the body is not looked at.
            context.api_version = -1
            message = handler.REQUEST()
        else:
            try:
                message = handler.REQUEST.decode(request.body, version, exact=self._exact[key])
            except DecodeError as error:
                request.close(f"{handler.REQUEST.NAME} version {version} cannot be decoded: {error}")
                return
        _Serving(handler, context, message, self._in_flight).start()

    async def drain(self, timeout_s: float) -> None:
        """Wait until what is being served has been answered, at most `timeout_s` seconds; what is left is cancelled."""
        deadline = time.monotonic() + timeout_s
        while self._in_flight and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_LOOK_S)
        for late in list(self._in_flight):
            late.cancel()


class _Serving:
    """One decoded request from its handler to its answer."""

    __slots__ = ("_context", "_handler", "_in_flight", "_message", "_started_ns", "_task")

    def __init__(
        self, handler: Handler, context: RequestContext, message: Request, in_flight: set[_Serving]
    ) -> None:
        self._handler = handler
        self._context = context
        self._message = message
        self._in_flight = in_flight
        """Where it stands while there is no answer."""
        self._task: asyncio.Task[None] | None = None
        self._started_ns = time.monotonic_ns()

    def start(self) -> None:
        try:
            answer = self._handler.handle(self._context, self._message)
        except Exception as error:  # whatever a handler does, the client gets an answer
            self._fail(error)
            return
        self._in_flight.add(self)
        if isinstance(answer, Later):
            answer.then(self._arrived)
        else:
            self._task = asyncio.get_running_loop().create_task(self._wait(answer))

    def cancel(self) -> None:
        """Answer no more."""
        if self._task is not None:
            self._task.cancel()
        elif self in self._in_flight:
            self._in_flight.discard(self)
            self._context.request.close("the broker is stopping")

    def _arrived(self, later: Later[Response]) -> None:
        if self not in self._in_flight:
            return
        self._in_flight.discard(self)
        if later.error is None:
            self._answer(later.result())
        else:
            self._fail(later.error)

    async def _wait(self, answer: Coroutine[Any, Any, Response]) -> None:
        try:
            response = await answer
        except asyncio.CancelledError:
            self._context.request.close("the broker is stopping")
            raise
        except Exception as error:  # whatever a handler does, the client gets an answer
            self._fail(error)
        else:
            self._answer(response)
        finally:
            self._in_flight.discard(self)

    def _answer(self, response: Response) -> None:
        try:
            self._context.request.reply(response.encode(max(self._context.api_version, 0)))
        except Exception as error:
            self._fail(error)
            return
        if request_logger.isEnabledFor(logging.DEBUG):
            self._log(response)

    def _fail(self, error: BaseException) -> None:
        handler, context, message = self._handler, self._context, self._message
        version = max(context.api_version, 0)
        if isinstance(error, KafkaError):
            logger.debug("%s from %s failed: %s", handler.REQUEST.NAME, context.client_address, error)
        else:
            logger.error(
                "Unexpected error handling %s version %s from client %r at %s",
                handler.REQUEST.NAME,
                version,
                context.client_id,
                context.client_address,
                exc_info=error,
            )
        response = error_response(handler, message, error)
        try:
            payload = None if response is None else response.encode(version)
        except EncodeError:
            payload = None
        if payload is None:
            context.request.close(f"{handler.REQUEST.NAME} has no response that could carry {code_of(error).name}")
            return
        context.request.reply(payload)
        if request_logger.isEnabledFor(logging.DEBUG):
            self._log(response)

    def _log(self, response: Response | None) -> None:
        now = time.monotonic_ns()
        context = self._context
        extra: dict[str, Any] = {
            "api": self._handler.REQUEST.NAME.removesuffix("Request"),
            "version": context.api_version,
            "correlation": context.correlation_id,
            "client": context.client_id,
            "connection": context.connection_id,
            "address": context.client_address,
            "listener": context.listener_name,
            "principal": context.principal,
            "queue_ms": _milliseconds(self._started_ns - context.request.received_ns),
            "local_ms": _milliseconds(now - self._started_ns),
            "total_ms": _milliseconds(now - context.request.received_ns),
        }
        if request_logger.isEnabledFor(TRACE):
            extra |= {"request": self._message, "response": response}
        request_logger.debug("Completed request", extra=extra)


def error_response(handler: Handler, request: Request, error: BaseException) -> Response | None:
    """The response of the request's own API that says `error`, or None when it has no place for one."""
    code = code_of(error)
    # What an unexpected exception says is for the log, not for the client.
    message = str(error) if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR.message
    own = getattr(handler, "error_response", None)
    if own is not None:
        made: Response = own(request, code, message)
        return made
    names = {field.name for field in handler.RESPONSE._fields}
    if "error_code" not in names:
        return None
    response = handler.RESPONSE()
    response.error_code = code  # type: ignore[attr-defined]
    if "error_message" in names:
        response.error_message = message  # type: ignore[attr-defined]
    return response


def _milliseconds(ns: int) -> str:
    return f"{ns / 1e6:.3f}"
