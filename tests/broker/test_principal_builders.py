"""Principal builders of plugins: their principals are what the authorizer decides about, on every protocol."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from kafkapy import KafkaAdminClient
from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.single_node import SINGLE_NODE
from kafkapy.errors import ConfigError, KafkaError, PluginError, SaslAuthenticationFailedError
from kafkapy.plugins import DEFAULT_PRINCIPAL_BUILDER, PluginManager, hookimpl
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.principal_builder import AuthenticationContext, BuilderSettings
from kafkapy.testing.broker_security import BrokerSecurity

KEY = "principal.builder.class"
PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")


class Builder:
    """Makes principals of another type. Refuses nobody, unless `answer` is an exception."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.seen: list[AuthenticationContext] = []
        self.settings: BuilderSettings | None = None
        self.closed = 0

    def configure(self, settings: BuilderSettings) -> None:
        self.settings = settings

    def build(self, context: AuthenticationContext) -> Any:
        self.seen.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return KafkaPrincipal("Robot", context.default().name) if self.answer is None else self.answer

    def close(self) -> None:
        self.closed += 1


def plugins_with(builder: Any) -> PluginManager:
    class Plugin:
        @hookimpl
        def register_principal_builders(self) -> Any:
            return {"robots": lambda: builder}

    plugins = PluginManager.load()
    plugins.register(Plugin(), "mine")
    return plugins


def server_with(directory: Path, security: BrokerSecurity, plugins: PluginManager | None, **keys: str) -> KafkaServer:
    given = {
        "broker.id": "1",
        "log.dirs": str(directory / "logs"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "Robot:ANONYMOUS;Robot:CN=carol;Robot:user",
        "ssl.client.auth": "requested",
        KEY: "robots",
        **SINGLE_NODE,
        **security.broker_keys(),
        **{name.replace("__", "."): value for name, value in keys.items()},
    }
    return KafkaServer(BrokerConfig(given), plugins)


def security_of(protocol: str) -> BrokerSecurity:
    return BrokerSecurity(protocol, mechanisms=["PLAIN"])


def made_topic(server: KafkaServer, keys: dict[str, str]) -> bool:
    """Whether the client's principal may create a topic."""
    bootstrap = f"127.0.0.1:{server.endpoints[0].port}"
    given = {name.replace(".", "_"): value for name, value in keys.items()}
    with KafkaAdminClient(bootstrap_servers=bootstrap, **given) as admin:  # type: ignore[arg-type]
        try:
            admin.create_topics({f"t{len(admin.list_topics())}": {"num_partitions": 1}})
        except KafkaError as error:
            if "uthorization" not in type(error).__name__:
                raise
            return False
    return True


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_principal_of_a_builder_is_the_one_that_the_authorizer_sees(tmp_path: Path, protocol: str) -> None:
    security, builder = security_of(protocol), Builder()
    with server_with(tmp_path, security, plugins_with(builder)) as server:
        assert made_topic(server, security.client_keys())
    assert builder.closed == 1
    assert builder.settings is not None
    assert builder.settings.get("super.users").startswith("Robot:")
    context = builder.seen[-1]
    assert (context.listener_name, context.security_protocol) == (protocol, protocol)
    assert context.client_address == "127.0.0.1"
    assert (context.tls_protocol != "") == protocol.endswith("SSL") == (context.cipher_suite != "")
    sasl = protocol.startswith("SASL")
    assert (context.sasl_mechanism, context.authorization_id) == (("PLAIN", "user") if sasl else ("", ""))
    assert context.peer_certificate is None
    assert str(context.default()) == ("User:user" if sasl else "User:ANONYMOUS")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_default_name_stands_for_the_built_in_rules(tmp_path: Path, protocol: str) -> None:
    security, builder = security_of(protocol), Builder()
    with server_with(
        tmp_path, security, plugins_with(builder), principal__builder__class=DEFAULT_PRINCIPAL_BUILDER
    ) as server:
        assert not made_topic(server, security.client_keys())
        assert server.socket_server.config.listener_security.keys() == ({protocol} - {"PLAINTEXT"})
    assert builder.seen == []


def test_a_certificate_and_its_principal_reach_the_builder(tmp_path: Path) -> None:
    security, builder = security_of("SSL"), Builder()
    with server_with(tmp_path, security, plugins_with(builder)) as server:
        assert made_topic(server, security.client_keys(certificate="carol"))
        assert not made_topic(server, security.client_keys(certificate="dave"))
    assert [str(each.default()) for each in builder.seen][-1] == "User:CN=dave"
    assert all(each.peer_certificate for each in builder.seen)


def test_a_builder_of_one_listener_leaves_the_others_alone(tmp_path: Path) -> None:
    security, builder = security_of("PLAINTEXT"), Builder()
    listeners = {
        "listeners": "OPEN://127.0.0.1:0,ROBOTS://127.0.0.1:0",
        "listener__security__protocol__map": "OPEN:PLAINTEXT,ROBOTS:PLAINTEXT",
        "inter__broker__listener__name": "OPEN",
        "listener__name__robots__principal__builder__class": "robots",
    }
    plugins = plugins_with(builder)
    with server_with(
        tmp_path, security, plugins, principal__builder__class=DEFAULT_PRINCIPAL_BUILDER, **listeners
    ) as server:
        assert not made_topic(server, {})
        assert builder.seen == []
        port = next(each.port for each in server.endpoints if each.listener_name == "ROBOTS")
        with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}") as admin:
            admin.create_topics({"t": {"num_partitions": 1}})
        assert builder.seen


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RuntimeError("no robots today"), "the connection gives no principal: no robots today"),
        ("Robot:x", "gave 'Robot:x', which is no KafkaPrincipal"),
        (KafkaPrincipal("Ro:bot", "x"), "gave the principal 'Ro:bot:x'"),
        (KafkaPrincipal("Robot", ""), "gave the principal 'Robot:'"),
    ],
)
def test_a_connection_without_a_principal_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Any, reason: str
) -> None:
    caplog.set_level("INFO", "kafka.network.RequestChannel")
    security, builder = security_of("PLAINTEXT"), Builder(answer)
    with server_with(tmp_path, security, plugins_with(builder)) as server:
        with socket.create_connection(("127.0.0.1", server.endpoints[0].port), 30) as client:
            assert client.recv(1) == b""
        wait_until(lambda: reason in caplog.text, "the log has the reason")


def test_a_login_without_a_principal_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafka.network.RequestChannel")
    security, builder = security_of("SASL_PLAINTEXT"), Builder(RuntimeError("no robots today"))
    with server_with(tmp_path, security, plugins_with(builder)) as server:
        with pytest.raises(SaslAuthenticationFailedError) as raised:
            made_topic(server, security.client_keys())
        assert "robots" not in str(raised.value)
        wait_until(lambda: "no principal: no robots today" in caplog.text, "the log has the reason")


# --- starts that are refused --------------------------------------------------------------------------------------


def test_a_class_of_java_is_refused_at_the_start(tmp_path: Path) -> None:
    reason = rf"Invalid value 'org\.example\.Mine' for configuration {KEY}: must be .*Default.*: no plugin registered"
    with pytest.raises(ConfigError, match=reason):
        server_with(tmp_path, security_of("PLAINTEXT"), None, principal__builder__class="org.example.Mine").start()


def test_an_unknown_name_of_one_listener_is_refused_with_its_key(tmp_path: Path) -> None:
    keys = {"listener__name__plaintext__principal__builder__class": "robot"}
    with pytest.raises(ConfigError, match=rf"listener\.name\.plaintext\.{KEY}: must be one of robots; did you mean"):
        server_with(tmp_path, security_of("PLAINTEXT"), plugins_with(Builder()), **keys).start()


def test_a_builder_that_cannot_be_configured_stops_the_start(tmp_path: Path) -> None:
    class Failing(Builder):
        def configure(self, settings: BuilderSettings) -> None:
            raise KeyError("robots.file")

    with pytest.raises(
        PluginError, match="configure of the principal builder 'robots' failed: KeyError: 'robots.file'"
    ):
        server_with(tmp_path, security_of("PLAINTEXT"), plugins_with(Failing())).start()
