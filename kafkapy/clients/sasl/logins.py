"""The SASL mechanisms that clients know, and a client's login by its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from kafkapy.clients.sasl.base import SaslLogin, SaslSettings
from kafkapy.errors import ConfigError

__all__ = ["MECHANISMS", "create_login"]

MECHANISMS: Final[Mapping[str, str]] = {
    "PLAIN": "plain",
    "SCRAM-SHA-256": "scram",
    "SCRAM-SHA-512": "scram",
    "OAUTHBEARER": "oauthbearer",
    "GSSAPI": "gssapi",
    "AWS_MSK_IAM": "msk",
}
"""Mechanism: module of this package with its `create_login`. The import waits for the first use."""


def create_login(settings: SaslSettings) -> SaslLogin:
    """The login of a mechanism.

    ConfigError for an unknown mechanism, or for missing or wrong settings.
    """
    module = MECHANISMS.get(settings.mechanism)
    if module is None:
        raise ConfigError("sasl.mechanism", settings.mechanism, f"must be one of {', '.join(MECHANISMS)}")
    create: Any = import_module(f"{__package__}.{module}").create_login
    login: SaslLogin = create(settings)
    return login
