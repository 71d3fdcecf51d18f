"""The files of docs/security.md about tokens and Kerberos, with a real identity provider and a real realm."""

from __future__ import annotations

import shutil
from pathlib import Path

import click.testing
import pytest
from identity_provider import identity_provider
from kerberos_realm import REALM, kerberos_realm, needs_kerberos
from tools.test_security_page import BLOCKS

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import load_properties
from kafkapy.tools.cli import main


def files(kind: str, replaced: dict[str, str]) -> dict[str, str]:
    """Write both files of a kind into the current directory; give the broker's keys."""
    for role in ("server", "client"):
        text = BLOCKS[f"{kind}-{role}.properties"]
        for old, new in replaced.items():
            text = text.replace(old, new)
        Path(f"{role}.properties").write_text(text)
    properties = load_properties("server.properties")
    return {
        **properties,
        "listeners": properties["listeners"].replace("9093", "0"),
        "log.dirs": str(Path("data").absolute()),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice",
    }


def create_topic(host: str, port: int) -> None:
    """As alice, who is the only one who may."""
    arguments = ["topics", "create", "orders", "-b", f"{host}:{port}", "--command-config", "client.properties"]
    result = click.testing.CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


def test_bearer_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with identity_provider(tmp_path) as provider:
        provider.token_claims = {"iss": "https://idp.example.com", "aud": "kafka"}
        keys = files(
            "oauthbearer",
            {"https://idp.example.com/jwks": provider.jwks_url, "https://idp.example.com/token": provider.token_url},
        )
        with KafkaServer(BrokerConfig(keys)) as server:
            create_topic("127.0.0.1", server.endpoints[0].port)
        assert provider.count("/jwks") == provider.count("/token") == 1


@needs_kerberos
def test_kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kerberos_realm(tmp_path) as realm:
        for name, value in realm.environment.items():
            monkeypatch.setenv(name, value)
        shutil.copy(realm.add("kafka/localhost"), "kafka.keytab")
        realm.add("alice")
        with KafkaServer(BrokerConfig(files("kerberos", {"EXAMPLE.COM": REALM}))) as server:
            create_topic("localhost", server.endpoints[0].port)
