"""KafkaApis: from a request frame to its reply. Source: kafka.server.KafkaApis and kafka.network.SocketServer.

`handlers.SERVED` is the dispatch table, and what ApiVersions says. Produce and Fetch are served by the data plane and
only show up here in ApiVersions.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import logging
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy._speedups.network.network_request import SASL_TOKEN
from kafkapy._speedups.protocol.codec import decode_request
from kafkapy._speedups.protocol.encoder import encode_response
from kafkapy.broker.context import BrokerContext, RequestContext
from kafkapy.broker.handlers import UNTHROTTLED, served_apis
from kafkapy.broker.large_messages import LargeMessages
from kafkapy.broker.timed_coroutine import TimedCoroutine
from kafkapy.config.config_def import HIDDEN
from kafkapy.coordinator.result import Later
from kafkapy.errors import ClusterAuthorizationFailedError, KafkaError, code_of
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError, EncodeError, Request, Response

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy.broker.large_messages import LargeTurn

logger = logging.getLogger("kafka.server.KafkaApis")
request_logger = logging.getLogger("kafka.request.logger")
TRACE: Final = 5
DRAIN_LOOK_S: Final = 0.005


class Handler(Protocol):
    """The declarations of a module in `handlers/`.

    `error_response`, `TRAILING_BYTES` (bytes behind the request's last field are overlooked, not a reason to close
    the connection) and `SECRETS` (the request log shows neither request nor response; True, or a
    function of the request) are optional.
    """

    REQUEST: type[Request]
    RESPONSE: type[Response]

    def handle(self, context: RequestContext, request: Any) -> Coroutine[Any, Any, Response] | Later[Response]:
        """Answer one request.

        An `async def`, or a function that gives a Later: it saves the task, which is what most of the time of a small
        request goes to.
        """


class KafkaApis:
    """Owns the dispatch table. Made by KafkaServer.

    `dispatch` is called on the control loop for every request the data plane does not serve itself, and never raises.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self.broker = broker
        self.served = served_apis(
            broker.store.is_shared, broker.config.metadata_store == "zookeeper", broker.telemetry is not None
        )
        self._handlers: dict[int, Handler] = {}
        self._exact: dict[int, bool] = {}
        """Whether bytes behind the last field are a reason to close the connection, by API key."""
        self._in_flight: set[_Serving] = set()
        self._large = LargeMessages()

    def handler(self, key: int) -> Handler:
        """The module that serves an API of `SERVED`, imported on first use."""
        handler = self._handlers.get(key)
        if handler is None:
            module: Any = importlib.import_module(f"kafkapy.broker.handlers.{ApiKeys(key).module}")
            handler = self._handlers[key] = module
            self._exact[key] = not getattr(module, "TRAILING_BYTES", False)
        return handler

    def dispatch(self, request: NetworkRequest) -> None:
        """Serve one request: reply now or later, or close its connection."""
        key, version = request.api_key, request.api_version
        served = self.served.get(key)
        if served is None:
            if key == SASL_TOKEN:
                self.broker.authentication.serve_token(request)
                return
            request.close(f"API key {key} is not served")
            return
        try:
            handler = self.handler(key)
        except Exception:  # whatever keeps a module from being imported must not keep other requests from being served
            logger.exception("The handler of API key %d cannot be imported; the broker refuses its requests", key)
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
            body = request.body
            if self._large.is_large(body):
                serving = _Serving(handler, context, None, self._in_flight, self._large)
                serving.start_large(body, self._exact[key])
                return
            try:
                message, _ = decode_request(handler.REQUEST, body, version, self._exact[key])
            except DecodeError as error:
                request.close(f"{handler.REQUEST.NAME} version {version} cannot be decoded: {error}")
                return
        _Serving(handler, context, message, self._in_flight, self._large).start()

    def close(self) -> None:
        """End the thread for large messages. Nothing may be in flight any more."""
        self._large.close()

    async def drain(self, timeout_s: float) -> None:
        """Wait for the answers to running requests, at most `timeout_s` seconds.

        Requests that are still running then are cancelled.
        """
        deadline = time.monotonic() + timeout_s
        while self._in_flight and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_LOOK_S)
        for late in list(self._in_flight):
            late.cancel()


class _Serving:
    """One request from its handler to its answer.

    Another thread decodes, encodes and lets go of large messages.
    """

    __slots__ = (
        "_answered",
        "_context",
        "_counts_time",
        "_handler",
        "_in_flight",
        "_large",
        "_message",
        "_response",
        "_spent_ns",
        "_started_ns",
        "_task",
        "_turn",
    )

    def __init__(
        self,
        handler: Handler,
        context: RequestContext,
        message: Request | None,
        in_flight: set[_Serving],
        large: LargeMessages,
    ) -> None:
        self._handler = handler
        self._context = context
        self._message = message
        self._in_flight = in_flight
        """Where it stands while there is no answer."""
        self._large = large
        self._response: Response | None = None
        self._turn: LargeTurn | None = None
        """Of a request of many elements: it has one until it is answered."""
        self._answered = False
        self._task: asyncio.Task[None] | None = None
        self._started_ns = time.monotonic_ns()
        self._counts_time = context.request.counts_time
        """Whether a quota bounds or counts the time of the request, and the request is not charged yet."""
        self._spent_ns = 0
        """Time on the loop's thread, without the waits in between; only where it counts."""

    def start(self) -> None:
        started = time.monotonic_ns() if self._counts_time else 0
        try:
            answer = self._handler.handle(self._context, self._message)
        except Exception as error:  # whatever a handler does, the client gets an answer
            self._spend_since(started)
            self._fail(error)
            return
        self._spend_since(started)
        self._in_flight.add(self)
        if isinstance(answer, Later):
            answer.then(self._arrived)
        else:
            if self._counts_time:
                answer = TimedCoroutine(answer, self._spend_since)
            self._task = asyncio.get_running_loop().create_task(self._wait(answer))

    def start_large(self, body: memoryview, exact: bool) -> None:
        """Decode the body on the other thread, at this request's turn, and start."""
        self._in_flight.add(self)
        self._task = asyncio.get_running_loop().create_task(self._decode(body, exact))

    async def _decode(self, body: memoryview, exact: bool) -> None:
        request, cls = self._context.request, self._handler.REQUEST
        version = self._context.api_version
        try:
            turn = await self._large.turn()
            try:
                self._message, elements = await self._large.run(decode_request, cls, body, version, exact, True)
            except BaseException:
                turn.end()
                raise
        except DecodeError as error:
            request.close(f"{cls.NAME} version {version} cannot be decoded: {error}")
            self._in_flight.discard(self)
            return
        except asyncio.CancelledError:
            request.close("the broker is stopping")
            self._in_flight.discard(self)
            raise
        self._task = None
        if self._large.are_many(elements):
            self._turn = turn
        else:
            turn.end()
        self.start()

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
            self._response = later.result()
            self._answer()
        else:
            self._fail(later.error)

    async def _wait(self, answer: Coroutine[Any, Any, Response]) -> None:
        try:
            self._response = await answer
        except asyncio.CancelledError:
            self._context.request.close("the broker is stopping")
            self._done()
            raise
        except Exception as error:  # whatever a handler does, the client gets an answer
            self._fail(error)
        else:
            self._answer()
        finally:
            if self._task is asyncio.current_task():
                self._in_flight.discard(self)

    def _spend_since(self, started_ns: int) -> None:
        if self._counts_time:
            self._spent_ns += time.monotonic_ns() - started_ns

    def _charge(self, error: BaseException | None = None) -> None:
        """Count the request in the client's quotas, once, and throttle its connection if one is violated.

        The response has the larger throttle time. Source: kafka.server.RequestHandlerHelper.
        """
        context, time_ms = self._context, 0
        if self._counts_time:
            self._counts_time = False
            exempt = context.api_key in UNTHROTTLED and not isinstance(error, ClusterAuthorizationFailedError)
            time_ms = context.request.charge_time(self._spent_ns, exempt)
        throttle_ms = max(context.throttle_ms, time_ms)
        if throttle_ms > 0:
            context.throttle_ms = throttle_ms
            context.request.throttle(throttle_ms, time_ms >= throttle_ms)

    def _throttled(self, response: Response | None) -> Response | None:
        """The response with the throttle time. A handler may give the same response to several requests."""
        if response is None or self._context.throttle_ms <= 0 or not hasattr(response, "throttle_time_ms"):
            return response
        response = copy.copy(response)
        response.throttle_time_ms = self._context.throttle_ms  # type: ignore[attr-defined]
        return response

    def _answer(self) -> None:
        """Reply with `_response`, which no frame holds: it may have to be let go of on the other thread."""
        try:
            if self._counts_time or self._context.throttle_ms:
                self._charge()
                self._response = self._throttled(self._response)
            payload = encode_response(self._response, max(self._context.api_version, 0))
            if payload is None:
                self._later(self._answer_large())
                return
            (self._context.send or self._context.request.reply)(payload)
        except Exception as error:
            self._fail(error)
            return
        self._answer_sent()

    def _fail(self, error: BaseException) -> None:
        handler, context = self._handler, self._context
        if isinstance(error, KafkaError):
            logger.debug("%s from %s failed: %s", handler.REQUEST.NAME, context.client_address, error)
        else:
            logger.error(
                "%s version %s from client %r at %s failed with an unexpected error",
                handler.REQUEST.NAME,
                max(context.api_version, 0),
                context.client_id,
                context.client_address,
                exc_info=error,
            )
        self._charge(error)
        if self._turn is not None:
            self._later(self._fail_large(error))
            return
        self._refuse(error, self._refusal(error))

    def _refusal(self, error: BaseException) -> bytes | None:
        """The encoded error response, or None. On either thread."""
        self._response = self._throttled(error_response(self._handler, self._message, error))
        try:
            return (
                None
                if self._response is None
                else encode_response(self._response, max(self._context.api_version, 0), patient=True)
            )
        except EncodeError:
            return None

    def _refuse(self, error: BaseException, payload: bytes | None) -> None:
        request = self._context.request
        if payload is None:
            request.close(f"{self._handler.REQUEST.NAME} has no response that could carry {code_of(error).name}")
            self._done()
        else:
            (self._context.send or request.reply)(payload)
            self._answer_sent()

    # --- on the other thread ----------------------------------------------------------------------------------------

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._in_flight.add(self)
        self._task = asyncio.get_running_loop().create_task(self._finish(work))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if not self._answered:
                self._context.request.close("the broker is stopping")
            raise
        finally:
            self._in_flight.discard(self)

    async def _answer_large(self) -> None:
        try:
            await self._large.run(self._encode_and_reply)
        except Exception as error:
            if self._answered:
                raise
            self._fail(error)
            return
        self._answer_sent(large=True)

    def _encode_and_reply(self) -> None:
        payload = encode_response(self._response, max(self._context.api_version, 0), patient=True)
        self._answered = True
        self._context.request.reply(payload or b"")

    async def _fail_large(self, error: BaseException) -> None:
        """The error for each of very many: made on the other thread too."""
        self._refuse(error, await self._large.run(self._refusal, error))

    def _answer_sent(self, large: bool = False) -> None:
        if request_logger.isEnabledFor(logging.DEBUG):
            self._log(self._response)
        self._done(large)

    def _done(self, large: bool = False) -> None:
        """The next large request may have its turn when what this one has made is gone."""
        turn, self._turn = self._turn, None
        if turn is not None or large:
            garbage: list[Any] = [self._message, self._response, self._context.leftovers]
            self._message = self._response = self._context.leftovers = None
            self._large.discard(garbage, turn)

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
            secrets = getattr(self._handler, "SECRETS", False)
            if secrets is True or (callable(secrets) and secrets(self._message)):
                extra |= {"request": HIDDEN, "response": HIDDEN}
            else:
                extra |= {"request": self._message, "response": response}
        request_logger.debug("Completed request", extra=extra)


def error_response(handler: Handler, request: Request | None, error: BaseException) -> Response | None:
    """The response of the request's own API that says `error`.

    None when that API has no place for an error.
    """
    code = code_of(error)
    # What an unexpected exception says is for the log, not for the client.
    message = str(error) if isinstance(error, KafkaError) else code.message
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
