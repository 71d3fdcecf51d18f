"""KafkaApis: from a request frame to its reply. Source: kafka.server.KafkaApis and kafka.network.SocketServer.

`handlers.SERVED` is the dispatch table, and what ApiVersions says. Produce and Fetch are served by the data plane and
only show up here in ApiVersions.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy.broker.context import BrokerContext, RequestContext
from kafkapy.broker.handlers import SERVED
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError, EncodeError, Request, Response

if TYPE_CHECKING:
    from kafkapy._speedups.network_request import NetworkRequest

logger = logging.getLogger("kafka.server.KafkaApis")
request_logger = logging.getLogger("kafka.request.logger")
TRACE: Final = 5


class Handler(Protocol):
    """What a module in `handlers/` declares; `error_response` and `TRAILING_BYTES` (bytes behind the request's last
    field are overlooked, not a reason to close the connection) are optional.
    """

    REQUEST: type[Request]
    RESPONSE: type[Response]

    def handle(self, context: RequestContext, request: Any) -> Awaitable[Response]:
        """Answer one request."""


class KafkaApis:
    """Owns the dispatch table. Made by KafkaServer; `dispatch` is called on the control loop for every request the
    data plane does not serve itself, and never raises.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self.broker = broker
        self._handlers: dict[int, Handler] = {}
        self._in_flight: set[asyncio.Task[None]] = set()

    def handler(self, key: int) -> Handler:
        """The module that serves an API of `SERVED`, imported when it is first asked for."""
        handler = self._handlers.get(key)
        if handler is None:
            module: Any = importlib.import_module(f"kafkapy.broker.handlers.{ApiKeys(key).module}")
            handler = self._handlers[key] = module
        return handler

    def dispatch(self, request: NetworkRequest) -> None:
        """Serve one request: reply to it now, start a task that will, or close its connection."""
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
                exact = not getattr(handler, "TRAILING_BYTES", False)
                message = handler.REQUEST.decode(request.body, version, exact=exact)
            except DecodeError as error:
                request.close(f"{handler.REQUEST.NAME} version {version} cannot be decoded: {error}")
                return
        task = asyncio.get_running_loop().create_task(self._serve(handler, request, context, message))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def drain(self, timeout_s: float) -> None:
        """Wait until what is being served has been answered, at most `timeout_s` seconds; what is left is cancelled."""
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=timeout_s)
            for task in late:
                task.cancel()

    async def _serve(
        self, handler: Handler, request: NetworkRequest, context: RequestContext, message: Request
    ) -> None:
        started = time.monotonic_ns()
        version = max(context.api_version, 0)
        response: Response | None
        try:
            response = await handler.handle(context, message)
            payload = response.encode(version)
        except asyncio.CancelledError:
            request.close("the broker is stopping")
            raise
        except Exception as error:  # the only broad one: whatever a handler does, the client gets an answer
            if isinstance(error, KafkaError):
                logger.debug("%s from %s failed: %s", handler.REQUEST.NAME, context.client_address, error)
            else:
                logger.exception(
                    "Unexpected error handling %s version %s from client %r at %s",
                    handler.REQUEST.NAME,
                    version,
                    context.client_id,
                    context.client_address,
                )
            response = error_response(handler, message, error)
            try:
                payload = b"" if response is None else response.encode(version)
            except EncodeError:
                response = None
            if response is None:
                request.close(f"{handler.REQUEST.NAME} has no response that could carry {code_of(error).name}")
                return
        request.reply(payload)
        if request_logger.isEnabledFor(logging.DEBUG):
            self._log_request(handler, request, context, message, response, started)

    def _log_request(
        self,
        handler: Handler,
        request: NetworkRequest,
        context: RequestContext,
        message: Request,
        response: Response,
        started_ns: int,
    ) -> None:
        now = time.monotonic_ns()
        extra: dict[str, Any] = {
            "api": handler.REQUEST.NAME.removesuffix("Request"),
            "version": context.api_version,
            "correlation": context.correlation_id,
            "client": context.client_id,
            "connection": context.connection_id,
            "address": context.client_address,
            "listener": context.listener_name,
            "principal": context.principal,
            "queue_ms": _milliseconds(started_ns - request.received_ns),
            "local_ms": _milliseconds(now - started_ns),
            "total_ms": _milliseconds(now - request.received_ns),
        }
        if request_logger.isEnabledFor(TRACE):
            extra |= {"request": message, "response": response}
        request_logger.debug("Completed request", extra=extra)


def error_response(handler: Handler, request: Request, error: Exception) -> Response | None:
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
