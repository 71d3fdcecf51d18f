"""The secrets among a broker's dynamic keys, encrypted in the metadata store.

A broker's own keys may have secrets, those of the cluster may not. With password.encoder.secret they are encrypted. In
stores that others may read, a secret needs that; the embedded store keeps it as it is otherwise, as KRaft does.
Source: kafka.server.DynamicBrokerConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.password_encoder import PasswordEncoder, is_encoded
from kafkapy.errors import ErrorCode, KafkaError, error_for

__all__ = ["StoredPasswords"]

logger = logging.getLogger("kafka.server.DynamicBrokerConfig")


class StoredPasswords:
    """Encodes and decodes the secrets of the broker's own keys.

    Owned by `DynamicConfig`; used on the control loop.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """ConfigError for an algorithm that is not supported."""
        self._config = config
        self._encoder = PasswordEncoder.of_config(config)
        self._old_encoder = PasswordEncoder.of_config(config, "password.encoder.old.secret")
        self._must_encrypt = config.metadata_store not in ("embedded", "memory")

    def decoded(self, stored: Mapping[str, str]) -> dict[str, str]:
        """The keys with plain secrets.

        A secret that cannot be decoded is left out, as in Kafka.
        """
        keys = dict(stored)
        for name, value in stored.items():
            if self._is_secret(name) and is_encoded(value):
                try:
                    keys[name] = self._decode(value)
                except ValueError as error:
                    logger.error("Dynamic password config %s could not be decoded, ignoring: %s", name, error)
                    del keys[name]
        return keys

    def encoded(self, keys: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
        """The keys as the store gets them.

        `before` is its present content: unchanged secrets keep their text. INVALID_CONFIG for a secret that must be
        encrypted and cannot be.
        """
        known = self.decoded(before)
        stored = dict(keys)
        for name, value in keys.items():
            if not self._is_secret(name):
                continue
            if known.get(name) == value and is_encoded(before[name]):
                stored[name] = before[name]
            elif self._encoder is not None:
                stored[name] = self._encoder.encode(value)
            elif self._must_encrypt:
                raise _no_secret()
        return stored

    def renewed(self, stored: Mapping[str, str]) -> dict[str, str]:
        """The stored keys with secrets of the old encoder encrypted by the current one."""
        keys = dict(stored)
        if self._encoder is None or self._old_encoder is None:
            return keys
        for name, value in stored.items():
            if self._is_secret(name) and is_encoded(value):
                try:
                    keys[name] = self._encoder.encode(self._old_encoder.decode(value))
                except ValueError:
                    continue  # the current secret made it
        return keys

    def check(self, keys: Mapping[str, str], per_broker: bool) -> None:
        """INVALID_REQUEST for a secret of the cluster, INVALID_CONFIG for one without encoder."""
        if any(self._is_secret(name) for name in keys):
            if not per_broker:
                raise error_for(ErrorCode.INVALID_REQUEST, "Password config can be defined only at broker level")
            if self._encoder is None and self._must_encrypt:
                raise _no_secret()

    def _is_secret(self, name: str) -> bool:
        key = self._config.key_for(name)
        return key is not None and key.sensitive

    def _decode(self, value: str) -> str:
        if self._encoder is None:
            raise ValueError("password.encoder.secret is not set")
        return self._encoder.decode(value)


def _no_secret() -> KafkaError:
    text = "Password encoder secret not configured; set password.encoder.secret, for others may read the store"
    return error_for(ErrorCode.INVALID_CONFIG, text)
