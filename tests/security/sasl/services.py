"""The broker's parts for mechanisms, without a broker."""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.config.broker import BrokerConfig
from kafkapy.plugins import PluginManager
from kafkapy.security.delegation_tokens import DelegationTokenCache
from kafkapy.security.jaas import parse_jaas
from kafkapy.security.sasl.base import CallbackHandler, MechanismSettings
from kafkapy.security.scram import CredentialCache, ScramMechanism, credential_of_password, encode_credential

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = b"0123456789abcdef0123456789abcdef"


class Services:
    def __init__(self, plugins: PluginManager | None = None) -> None:
        self.credentials = CredentialCache(SECRET)
        self.tokens = DelegationTokenCache("token secret")
        self._plugins = plugins or PluginManager.load()

    def callback_handler(self, name: str) -> CallbackHandler:
        return self._plugins.create_sasl_callback_handler("sasl.server.callback.handler.class", name)

    def add_user(self, user: str, password: str, iterations: int = 4096) -> None:
        made = {
            name: encode_credential(credential_of_password(ScramMechanism.of_name(name), password, iterations))
            for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        assert self.credentials.update(user, made) == []


def settings(mechanism: str, jaas: str = "", keys: Mapping[str, str] | None = None) -> MechanismSettings:
    given = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "inter.broker.listener.name": "SASL_PLAINTEXT"}
    given["sasl.enabled.mechanisms"] = given["sasl.mechanism.inter.broker.protocol"] = mechanism
    config = BrokerConfig({**given, **(keys or {})})
    return MechanismSettings(mechanism, "SASL_PLAINTEXT", config, parse_jaas(jaas) if jaas else ())


def plain_jaas(**users: str) -> str:
    options = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"{PLAIN_MODULE} required {options};"
