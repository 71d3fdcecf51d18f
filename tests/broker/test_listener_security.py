"""The principals of certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from certificates import localhost, make_ca, shared_ca

from kafkapy.broker.listener_security import ListenerSecurities
from kafkapy.broker.principals import PrincipalBuilders
from kafkapy.config.broker import BrokerConfig
from kafkapy.plugins import PluginManager


class Request:
    """The question of the data plane for a connection's principal."""

    listener_name = "SSL"

    def __init__(self, certificate: bytes) -> None:
        self.peer_certificate = certificate
        self.answers: list[tuple[str, Any]] = []

    def authenticated(self, principal: str) -> None:
        self.answers.append(("authenticated", principal))

    def authentication_failed(self, reason: str) -> None:
        self.answers.append(("failed", reason))


@pytest.mark.parametrize(
    ("rules", "answer"),
    [
        ("DEFAULT", ("authenticated", "User:CN=alice")),
        ("RULE:^CN=(.*)$/$1/U", ("authenticated", "User:ALICE")),
        ("RULE:^CN=(x?).*$/$1/", ("failed", "the certificate gives no principal: its name is empty")),
    ],
)
def test_the_rules_make_the_principal(tmp_path: Path, rules: str, answer: tuple[str, str]) -> None:
    me = localhost()
    keys = {
        "broker.id": "1",
        "log.dirs": str(tmp_path),
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": me.key_pem.decode(),
        "ssl.keystore.certificate.chain": me.chain_pem.decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": shared_ca().pem.decode(),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": rules,
    }
    request: Any = Request(make_ca("any").sign("alice").der)
    config = BrokerConfig(keys)
    ListenerSecurities(config, PrincipalBuilders(config, PluginManager)).answer_principal(request)
    assert request.answers == [answer]
