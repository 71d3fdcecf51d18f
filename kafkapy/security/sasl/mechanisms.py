"""The built-in SASL mechanisms. Their modules are imported when a listener enables them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkapy.plugins import hookimpl

if TYPE_CHECKING:
    from kafkapy.security.sasl.base import SaslMechanism


def _plain() -> SaslMechanism:
    from kafkapy.security.sasl.plain import PlainMechanism

    return PlainMechanism()


def _scram_sha_256() -> SaslMechanism:
    from kafkapy.security.sasl.scram import Scram
    from kafkapy.security.scram import ScramMechanism

    return Scram(ScramMechanism.SCRAM_SHA_256)


def _scram_sha_512() -> SaslMechanism:
    from kafkapy.security.sasl.scram import Scram
    from kafkapy.security.scram import ScramMechanism

    return Scram(ScramMechanism.SCRAM_SHA_512)


def _oauthbearer() -> SaslMechanism:
    from kafkapy.security.sasl.oauthbearer import OAuthBearerMechanism

    return OAuthBearerMechanism()


def _gssapi() -> SaslMechanism:
    from kafkapy.security.sasl.gssapi import GssapiMechanism

    return GssapiMechanism()


@hookimpl
def register_sasl_mechanisms() -> Mapping[str, Callable[[], SaslMechanism]]:
    """The factories of the built-in mechanisms, by their names."""
    return {
        "PLAIN": _plain,
        "SCRAM-SHA-256": _scram_sha_256,
        "SCRAM-SHA-512": _scram_sha_512,
        "OAUTHBEARER": _oauthbearer,
        "GSSAPI": _gssapi,
    }
