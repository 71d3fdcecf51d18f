"""A broker inside the process of a test.

    with Broker(num_partitions=3) as broker:
        broker.create_topic("orders")
        ...  # clients connect to broker.bootstrap_servers

It is the broker of `kafkapy-server`, with data plane and coordinators, but nothing on disk: segments are memory files,
metadata is a dictionary, and the port is a free one of 127.0.0.1. It sets no signal handlers and configures no logging
(its messages go to Python's loggers below `kafka`). Any number of brokers can run side by side.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.listeners import split_list
from kafkapy.config.single_node import SINGLE_NODE
from kafkapy.controller.admin_requests import NO_VALUE, NewTopic
from kafkapy.errors import IllegalStateError, KafkaError
from kafkapy.plugins import PluginManager
from kafkapy.testing.broker_security import MECHANISMS, BrokerSecurity

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["Broker"]

T = TypeVar("T")

DEFAULTS: Final[dict[str, str]] = {
    "broker.id": "1",
    "kafkapy.metadata.store": "memory",
    "kafkapy.storage.backend": "memory",
    "log.dirs": "/memory",
    "num.network.threads": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    **SINGLE_NODE,
    "log.cleaner.dedupe.buffer.size": str(2 << 20),
    "log.segment.delete.delay.ms": "0",
}
"""The differences from a broker's defaults: no data on disk, no delays before deletion, no waits that only clusters
need."""


class Broker:
    """A broker on threads of this process.

    Any thread may create and use it; the same thread calls `start` and `stop`. Overrides are Kafka's broker keys, with
    underscores for the dots: `Broker(auto_create_topics_enable=False)`. ConfigError for an unknown key or an invalid
    value. The broker also ends with its process.

    `security` is the listener's security protocol, such as "SASL_SSL", with certificates made for the broker and users
    that may log in: `Broker(security="SASL_SSL", users={"ann": "secret"})`. `client_config()` gives a client's keys.
    `plugins` are modules or objects with hooks (kafkapy.hookspecs), beside the installed plugins.
    """

    def __init__(
        self,
        *,
        security: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        mechanisms: Iterable[str] = MECHANISMS,
        plugins: Iterable[object] = (),
        **overrides: object,
    ) -> None:
        self._security = BrokerSecurity(security, users, mechanisms)
        values = DEFAULTS | self._security.broker_keys()
        for name, value in overrides.items():
            values[name.replace("_", ".")] = _text(value)
        self._plugins = PluginManager.load(split_list(values.get("kafkapy.plugins.disabled", "")))
        for number, plugin in enumerate(plugins):
            self._plugins.register(plugin, f"test-{number}")
        self._config = BrokerConfig(values, definition=self._plugins.broker_config_def())
        self._server: KafkaServer | None = None

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Start the broker on a new port.

        Returns when clients can connect. A second call does nothing.
        """
        if self._server is None:
            self._server = KafkaServer(self._config, self._plugins).start(daemon=True)
            credentials = self._security.credentials()
            if credentials:
                try:
                    self._server.call(self._server.context.logins.scram_credentials.alter((), credentials))
                except BaseException:
                    self.stop()
                    raise
        return self

    def stop(self) -> None:
        """Stop the broker and discard topics and records.

        Returns when its threads have ended and its port is closed. A second call does nothing.
        """
        self._security.remove_files()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        try:
            return await _on_a_thread(self.start)
        except BaseException:
            self.stop()  # the task was cancelled while the broker started
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _on_a_thread(self.stop)

    @property
    def server(self) -> KafkaServer:
        """The running server. IllegalStateError when the broker is not running."""
        if self._server is None:
            raise IllegalStateError("the broker is not running")
        return self._server

    # --- for clients ----------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port of the first listener.

        IllegalStateError when the broker is not running.
        """
        return self.server.endpoints[0].port

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the first listener. IllegalStateError when the broker is not running."""
        endpoint = self.server.endpoints[0]
        return f"{endpoint.host}:{endpoint.port}"

    def client_config(
        self, user: str | None = None, *, mechanism: str | None = None, certificate: str | None = None
    ) -> dict[str, str]:
        """Keys of Kafka's clients, with addresses and security: KafkaProducer(broker.client_config()).

        The default user is the first one, the default mechanism SCRAM-SHA-512. `certificate` is a distinguished name:
        the client gets a certificate of that name. ConfigError for an unknown user or mechanism; IllegalStateError when
        the broker is not running.
        """
        servers = {"bootstrap.servers": self.bootstrap_servers}
        return servers | self._security.client_keys(user, mechanism, certificate)

    @property
    def users(self) -> Mapping[str, str]:
        """The users that may log in, with their passwords."""
        return self._security.users

    @property
    def ca_file(self) -> str:
        """A PEM file with the authority of the broker's certificate, until the broker stops."""
        return str(self._security.ca_file())

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> UUID:
        """Create a topic, ready for writes, and return its id.

        The default of `partitions` is num.partitions; keys of `configs` are Kafka's: {"cleanup.policy": "compact"}.
        TopicAlreadyExistsError, InvalidTopicError, ConfigError, InvalidPartitionsError; IllegalStateError.
        """
        texts = {key: _text(value) for key, value in (configs or {}).items()}
        topic = NewTopic(name, NO_VALUE if partitions is None else partitions, configs=texts)
        outcome = self._topic_admin(lambda admin: admin.create_topics([topic]))[name]
        if isinstance(outcome, KafkaError):
            raise outcome
        topic_id: UUID = outcome.topic_id
        return topic_id

    def delete_topic(self, name: str) -> None:
        """Delete a topic. UnknownTopicOrPartitionError; IllegalStateError."""
        outcome = self._topic_admin(lambda admin: admin.delete_topics([name]))[name]
        if outcome is not None:
            raise outcome

    def _topic_admin(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        return self.server.call(ask(self.server.context.topic_admin))


def _text(value: object) -> str:
    """A value in the text form of a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _on_a_thread(work: Callable[[], T]) -> T:
    """The result of a blocking call, made on a new thread.

    The loop's worker threads would outlive the call.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # the waiting task gets it
            failure = error
        loop.call_soon_threadsafe(settle, result, failure)

    thread = threading.Thread(target=body, name="kafkapy-testing-broker", daemon=True)
    thread.start()
    try:
        return await done
    finally:
        thread.join()
