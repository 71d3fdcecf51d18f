"""A client's login by its settings, and PLAIN."""

from __future__ import annotations

import asyncio

import pytest

from kafkapy.clients.sasl.base import SaslClient, SaslSettings
from kafkapy.clients.sasl.logins import create_login
from kafkapy.errors import ConfigError


def settings(mechanism: str, **options: str) -> SaslSettings:
    return SaslSettings(mechanism, options, {})


def exchange(mechanism: str, **options: str) -> SaslClient:
    login = create_login(settings(mechanism, **options))
    assert login.mechanism == mechanism

    async def of_login() -> SaslClient:
        made = await login.exchange("broker")
        await login.close()
        await login.close()
        return made

    return asyncio.run(of_login())


def test_plain_sends_one_token_with_name_and_password() -> None:
    subject = exchange("PLAIN", username="ann", password="grün=,")
    assert not subject.complete
    assert subject.initial() == b"\0ann\0" + "grün=,".encode()
    assert subject.complete
    assert subject.evaluate(b"") is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_begins_with_the_name_and_a_new_nonce(mechanism: str) -> None:
    first, second = (exchange(mechanism, username="ann", password="x").initial() for _ in range(2))
    assert first.startswith(b"n,,n=ann,r=")
    assert first != second


def test_a_delegation_token_is_announced() -> None:
    initial = exchange("SCRAM-SHA-256", username="id", password="hmac", tokenauth="true").initial()
    assert initial.endswith(b",tokenauth=true")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("missing", ["username", "password"])
def test_a_missing_option_is_named(mechanism: str, missing: str) -> None:
    options = {"username": "ann", "password": "hunter2"} | {missing: ""}
    with pytest.raises(ConfigError, match=f"{mechanism} needs the option {missing}") as raised:
        create_login(settings(mechanism, **options))
    assert "hunter2" not in str(raised.value)


def test_plain_refuses_what_its_token_cannot_carry() -> None:
    with pytest.raises(ConfigError, match="NUL") as raised:
        create_login(settings("PLAIN", username="ann", password="hunter2\0"))
    assert "hunter2" not in str(raised.value)


def test_an_unknown_mechanism_is_refused_with_the_known_ones() -> None:
    known = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM"
    with pytest.raises(ConfigError, match=f"must be one of {known}"):
        create_login(settings("CRAM-MD5"))


def test_settings_show_no_secret() -> None:
    assert "hunter2" not in repr(settings("PLAIN", username="ann", password="hunter2"))
