"""SASL on the broker's listeners: their mechanisms, and the authenticators of their connections.

The data plane gives Python only ApiVersions, SaslHandshake, SaslAuthenticate and tokens while a connection is not
authenticated. Each such connection has a `SaslServerAuthenticator`; its answers go back with what they mean for the
connection. The usual login by SCRAM never comes here: network threads serve it (`_speedups/network/channel_login`).
Source: org.apache.kafka.common.network.SaslChannelBuilder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ConfigError
from kafkapy.security.jaas import JaasEntry, JaasError, parse_jaas, parse_jaas_file
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.sasl.authenticator import FIRST_WITH_HEADERS, Outcome, SaslAnswer, SaslServerAuthenticator
from kafkapy.security.sasl.base import CallbackHandler, MechanismSettings, SaslMechanism
from kafkapy.security.sasl.scram import Scram

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy.broker.principals import PrincipalBuilders
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.network.socket_server import SocketServer
    from kafkapy.plugins import PluginManager
    from kafkapy.security.delegation_tokens import DelegationTokenCache
    from kafkapy.security.scram import CredentialCache

__all__ = ["Authentication", "Services"]

JAAS_KEY: Final = "sasl.jaas.config"
HANDLER_KEY: Final = "sasl.server.callback.handler.class"
ENABLED_KEY: Final = "sasl.enabled.mechanisms"
REAUTHENTICATION_KEY: Final = "connections.max.reauth.ms"
JAAS_FILE: Final = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
"""The JAAS file in KAFKA_OPTS, as Kafka's start scripts take it."""
JAAS_CONTEXT: Final = "KafkaServer"

logger = logging.getLogger("org.apache.kafka.common.network.SaslChannelBuilder")


class Services:
    """The broker's parts that mechanisms may use (`SaslServices`)."""

    def __init__(self, plugins: PluginManager, credentials: CredentialCache, tokens: DelegationTokenCache) -> None:
        self.credentials = credentials
        self.tokens = tokens
        self._plugins = plugins

    def callback_handler(self, name: str) -> CallbackHandler:
        """A new handler of that registered name."""
        return self._plugins.create_sasl_callback_handler(HANDLER_KEY, name)


@dataclass(slots=True)
class _Listener:
    """The mechanisms of one listener. Its connections share the tables, so a change is one in place."""

    mechanisms: dict[str, SaslMechanism]
    max_reauth_ms: dict[str, int]
    keys: Mapping[str, Any]
    """The keys that the mechanisms were made from."""

    def replace(self, other: _Listener) -> list[SaslMechanism]:
        """Take over another listener's tables; the mechanisms before."""
        before = list(self.mechanisms.values())
        self.mechanisms.clear()
        self.mechanisms.update(other.mechanisms)
        self.max_reauth_ms.clear()
        self.max_reauth_ms.update(other.max_reauth_ms)
        self.keys = other.keys
        return before


class Authentication:
    """Owns the mechanisms of all SASL listeners.

    Made by the broker, used on the control loop. A dynamic change of a listener's keys gives new mechanisms to later
    authentications; authentications under way finish with the old ones.
    """

    def __init__(self, plugins: PluginManager, services: Services, principals: PrincipalBuilders) -> None:
        self._principals = principals
        self._plugins = plugins
        self._services = services
        self._listeners: dict[str, _Listener] = {}
        self._server: SocketServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._order = asyncio.Lock()
        """Changes take effect in the order that they came in."""
        self._file_contexts: dict[str, list[JaasEntry]] | None = None

    async def start(self, config: BrokerConfig) -> None:
        """Make the mechanisms of every listener. ConfigError names the key."""
        for name in _sasl_listeners(config):
            self._listeners[name] = await self._make(name, config, _keys_of(name, config))

    def config_changed(self, config: BrokerConfig) -> None:
        """Follow a change of the broker's dynamic configuration, soon."""
        self._later(self.update_config(config))

    def check(self, config: BrokerConfig) -> None:
        """ConfigError when a listener's new keys name unknown mechanisms, or a wrong JAAS text."""
        for name in _sasl_listeners(config):
            listener = self._listeners.get(name)
            if listener is not None and _keys_of(name, config) == listener.keys:
                continue
            for mechanism in _enabled(name, config):
                self._plugins.create_sasl_mechanism(ENABLED_KEY, mechanism)
                self._jaas(name, mechanism, config)

    async def update_config(self, config: BrokerConfig) -> None:
        """Give listeners whose keys have changed new mechanisms.

        A listener whose new keys are wrong keeps the mechanisms it has.
        """
        async with self._order:
            for name, listener in list(self._listeners.items()):
                keys = _keys_of(name, config)
                if keys == listener.keys:
                    continue
                try:
                    made = await self._make(name, config, keys)
                except ConfigError as error:
                    logger.error("Listener %s keeps its SASL mechanisms: %s", name, error)
                    continue
                logger.info("Listener %s has new SASL settings", name)
                before = listener.replace(made)
                if self._server is not None:
                    self.serve_scram(self._server)
                await _close(before)

    async def update_listeners(self, config: BrokerConfig) -> None:
        """Make the mechanisms of new listeners, and close those of removed ones.

        ConfigError names the key.
        """
        async with self._order:
            wanted = _sasl_listeners(config)
            for name in self._listeners.keys() - set(wanted):
                await _close(self._listeners.pop(name).mechanisms.values())
            for name in wanted:
                if name not in self._listeners:
                    self._listeners[name] = await self._make(name, config, _keys_of(name, config))

    def serve_scram(self, server: SocketServer) -> None:
        """Let network threads log in by SCRAM, where Python adds nothing to it.

        It holds after changes too. Sessions that end, plugins in the mechanism's place, and builders of principals are
        Python's.
        """
        self._server = server
        for name, listener in self._listeners.items():
            tables = [
                self._services.credentials.tables[mechanism]
                for mechanism, made in listener.mechanisms.items()
                if type(made) is Scram and listener.max_reauth_ms.get(mechanism, 0) <= 0
            ]
            server.serve_scram(name, [] if name in self._principals else tables, list(listener.mechanisms))

    async def stop(self) -> None:
        """Answer no token any more, and close the mechanisms."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            await _close(listener.mechanisms.values())

    def authenticator(self, request: NetworkRequest) -> SaslServerAuthenticator:
        """The authenticator of the request's connection; made for its first request."""
        found = request.connection_data
        if found is None:
            listener = self._listeners.get(request.listener_name) or _Listener({}, {}, {})
            build = self._principals.of_sasl(request)
            found = SaslServerAuthenticator(listener.mechanisms, listener.max_reauth_ms, build)
            # The end of a connection is told once: after it nobody would let go of what is kept here.
            if request.connection_open:
                request.connection_data = found
        assert isinstance(found, SaslServerAuthenticator)
        if request.scram is not None:
            # A network thread has answered the SaslHandshake.
            found.handshake(request.scram, FIRST_WITH_HEADERS)
        elif request.stage == "ready" and found.principal is None:
            found.adopt(KafkaPrincipal.parse(request.principal))
        return found

    def sender(self, request: NetworkRequest, answer: SaslAnswer) -> Callable[[bytes], None] | None:
        """Sends the encoded response with the answer's meaning for the connection.

        None: `request.reply` does.
        """
        if answer.outcome is not Outcome.CONTINUE:
            return partial(self._finish, request, answer)
        authenticator = request.connection_data
        if authenticator is not None and authenticator.tokens_follow:
            request.tokens_follow = True
        return None

    def serve_token(self, request: NetworkRequest) -> None:
        """Answer a frame that is a token without header."""
        self._later(self._serve_token(request))

    async def _serve_token(self, request: NetworkRequest) -> None:
        try:
            answer = await self.authenticator(request).token(bytes(request.body), None)
        except asyncio.CancelledError:
            request.close("the broker is stopping")
            raise
        if answer.outcome is Outcome.CONTINUE:
            request.reply_frame(answer.auth_bytes)
        else:
            self._finish(request, answer, answer.auth_bytes)

    def _finish(self, request: NetworkRequest, answer: SaslAnswer, payload: bytes) -> None:
        if answer.outcome is Outcome.FAILED:
            request.authentication_failed(payload if answer.reply else None, reason=answer.reason)
            return
        principal = answer.principal
        assert principal is not None
        request.authenticated(str(principal), answer.session_end_ms, payload, principal.token_authenticated)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- mechanisms -------------------------------------------------------------------------------------------------

    async def _make(self, listener_name: str, config: BrokerConfig, keys: Mapping[str, Any]) -> _Listener:
        enabled = _enabled(listener_name, config)
        mechanisms: dict[str, SaslMechanism] = {}
        try:
            for name in enabled:
                if name not in mechanisms:
                    mechanism = mechanisms[name] = self._plugins.create_sasl_mechanism(ENABLED_KEY, name)
                    settings = MechanismSettings(name, listener_name, config, self._jaas(listener_name, name, config))
                    await mechanism.configure(settings, self._services)
        except BaseException:
            await _close(mechanisms.values())
            raise
        limits = {name: config.for_listener(listener_name, REAUTHENTICATION_KEY, name) for name in mechanisms}
        return _Listener(mechanisms, limits, keys)

    def _jaas(self, listener_name: str, mechanism: str, config: BrokerConfig) -> Sequence[JaasEntry]:
        """The entries of the mechanism's own key, else of a JAAS file. Other keys do not count, as in Kafka."""
        key = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{JAAS_KEY}"
        if key in config:
            try:
                entries = parse_jaas(config[key].value)
            except JaasError as error:
                raise ConfigError(key, None, str(error)) from None
            if len(entries) != 1:
                raise ConfigError(key, None, f"must have one login module, not {len(entries)}")
            return entries
        contexts = self._contexts_of_file()
        return contexts.get(f"{listener_name.lower()}.{JAAS_CONTEXT}", contexts.get(JAAS_CONTEXT, ()))

    def _contexts_of_file(self) -> Mapping[str, Sequence[JaasEntry]]:
        if self._file_contexts is None:
            found = JAAS_FILE.search(os.environ.get("KAFKA_OPTS", ""))
            self._file_contexts = {} if found is None else _read_jaas_file(found[1].strip("\"'"))
        return self._file_contexts


def _sasl_listeners(config: BrokerConfig) -> list[str]:
    return [each.listener_name for each in config.listeners if each.security_protocol.sasl]


def _enabled(listener_name: str, config: BrokerConfig) -> list[str]:
    """The mechanisms of a listener. ConfigError when there is none."""
    enabled: list[str] = config.for_listener(listener_name, ENABLED_KEY) or []
    if not enabled:
        key = f"listener.name.{listener_name.lower()}.{ENABLED_KEY}"
        raise ConfigError(key, "", "must name at least one mechanism")
    return enabled


def _keys_of(listener_name: str, config: BrokerConfig) -> dict[str, Any]:
    """The values of all keys that a listener's mechanisms may read, by name."""
    prefix = f"listener.name.{listener_name.lower()}."
    return config.values_of((prefix, "sasl.", REAUTHENTICATION_KEY))


def _read_jaas_file(path: str) -> dict[str, list[JaasEntry]]:
    try:
        return parse_jaas_file(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("java.security.auth.login.config", path, f"cannot be read: {error}") from None
    except JaasError as error:
        raise ConfigError("java.security.auth.login.config", path, str(error)) from None


async def _close(mechanisms: Iterable[SaslMechanism]) -> None:
    for mechanism in mechanisms:
        try:
            await mechanism.close()
        except Exception:  # a mechanism may be a plugin's: the others are closed too
            logger.exception("The SASL mechanism %s could not be closed", mechanism.name)
