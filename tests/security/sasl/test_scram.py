"""SCRAM: RFC 7677's example, Kafka's rules, and answers that do not tell whether a user exists."""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import replace
from typing import Any

import pytest
from security.sasl.scram_client import ScramClient
from security.sasl.services import Services, settings

from kafkapy._speedups.base.scram import ScramLogin
from kafkapy.security.delegation_tokens import TokenInformation
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.sasl.base import SaslAuthenticationError, SaslError
from kafkapy.security.sasl.scram import Scram, ScramServer
from kafkapy.security.scram import (
    ScramMechanism,
    credential_of_password,
    decode_credential,
    encode_credential,
)

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
ALICE = KafkaPrincipal("User", "alice")


def server_of(services: Services, mechanism: str = "SCRAM-SHA-256") -> ScramServer:
    made = Scram(ScramMechanism.of_name(mechanism))
    asyncio.run(made.configure(settings(mechanism), services))
    return made.server()


def evaluate(server: ScramServer, token: bytes) -> bytes:
    return asyncio.run(server.evaluate(token))


def log_in(services: Services, mechanism: str, user: str, password: str, **arguments: Any) -> ScramServer:
    server, client = server_of(services, mechanism), ScramClient(mechanism, user, password, **arguments)
    client.check(evaluate(server, client.final(evaluate(server, client.first()))))
    return server


def test_the_example_of_rfc_7677() -> None:
    credential = credential_of_password(
        ScramMechanism.SCRAM_SHA_256, "pencil", 4096, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    )
    login = ScramLogin("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert (login.user, login.authzid, login.by_token) == ("user", "", False)
    assert login.begin(credential, True, b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert login.finish(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "with space", "CN=x,O=y"])
def test_a_user_logs_in(mechanism: str, user: str) -> None:
    services = Services()
    services.add_user(user, "p\u00e4ssword", iterations=5000)
    server = log_in(services, mechanism, user, "p\u00e4ssword", extensions=",other=x,more=y=z")
    assert (server.mechanism, server.authorization_id, dict(server.properties)) == (mechanism, user, {})


def test_the_same_user_as_authorization_id_is_accepted_and_another_refused() -> None:
    services = Services()
    services.add_user("alice", "x")
    log_in(services, "SCRAM-SHA-256", "alice", "x", authzid="alice")
    for user in ("alice", "nobody"):
        client = ScramClient("SCRAM-SHA-256", user, "x", authzid="bob")
        with pytest.raises(SaslAuthenticationError, match="authorization id that is different from username"):
            evaluate(server_of(services), client.first())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_unknown_user_and_wrong_password_look_the_same(mechanism: str) -> None:
    services = Services()
    services.add_user("alice", "right")
    texts, shapes = set(), set()
    for user in ("alice", "nobody", "somebody"):
        server, client = server_of(services, mechanism), ScramClient(mechanism, user, "wrong")
        challenge = evaluate(server, client.first())
        final = client.final(challenge)
        shapes.add((len(challenge), len(client.salt), client.iterations))
        with pytest.raises(SaslError) as caught:
            evaluate(server, final)
        assert type(caught.value) is SaslError
        assert not server.complete
        texts.add(str(caught.value))
    assert len(texts) == len(shapes) == 1


def test_an_unknown_user_has_one_salt_and_others_have_others() -> None:
    def salt(services: Services, user: str, mechanism: str = "SCRAM-SHA-256") -> bytes:
        client = ScramClient(mechanism, user, "x")
        client.final(evaluate(server_of(services, mechanism), client.first()))
        return client.salt

    services = Services()
    assert salt(services, "nobody") == salt(services, "nobody") == salt(Services(), "nobody")
    assert len({salt(services, "nobody"), salt(services, "nemo"), salt(services, "nobody", "SCRAM-SHA-512")}) == 3


def test_an_unknown_user_looks_like_most_users() -> None:
    """Kafka's tools make salts of 26 digits and small letters; an unknown user must not stand out among them."""
    services = Services()

    def put(user: str, salt: bytes, iterations: int) -> None:
        made = credential_of_password(ScramMechanism.SCRAM_SHA_256, "x", iterations, salt)
        services.credentials.update(user, {"SCRAM-SHA-256": encode_credential(made)})

    put("one", b"1f4lx0nzuk5e5qd3m8z0b6y7ab", 8192)
    put("two", b"qd3m8z0b6y7ab1f4lx0nzuk5e5", 8192)
    put("three", b"\0" * 16, 4096)
    seen = services.credentials.unknown("SCRAM-SHA-256", "nobody")
    assert (len(seen.salt), seen.salt.isalnum(), seen.salt.islower(), seen.iterations) == (26, True, True, 8192)
    assert seen.salt == services.credentials.unknown("SCRAM-SHA-256", "nobody").salt
    services.credentials.update("one", {})
    services.credentials.update("two", {})
    seen = services.credentials.unknown("SCRAM-SHA-256", "nobody")
    assert (len(seen.salt), seen.iterations) == (16, 4096)
    assert len(services.credentials.unknown("SCRAM-SHA-512", "nobody").salt) == 24


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_password_fits_an_unknown_user(mechanism: str) -> None:
    """Also not a proof made with the very keys of the credential that stands for it."""
    unknown = Services().credentials.unknown(mechanism, "nobody")
    again = Services().credentials.unknown(mechanism, "nobody")
    assert again.salt == unknown.salt and again.stored_key != unknown.stored_key
    known = credential_of_password(ScramMechanism.of_name(mechanism), "right", 4096, unknown.salt)
    client = ScramClient(mechanism, "nobody", "right")
    login = ScramLogin(mechanism, client.first())
    with pytest.raises(ValueError, match="Invalid client credentials"):
        login.finish(client.final(login.begin(known, False)))
    client = ScramClient(mechanism, "nobody", "right")
    login = ScramLogin(mechanism, client.first())
    client.check(login.finish(client.final(login.begin(known, True))))


def test_a_credential_with_too_few_iterations_is_as_good_as_none() -> None:
    services = Services()
    services.add_user("alice", "right", iterations=4095)
    client = ScramClient("SCRAM-SHA-256", "alice", "right")
    server = server_of(services)
    final = client.final(evaluate(server, client.first()))
    assert client.iterations == 4096
    with pytest.raises(SaslError, match="Invalid client credentials"):
        evaluate(server, final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a\x80",
        b"n,,n=al\xc3\xa9,r=abc",
        b"n,,n=alice,r=abc,1=x",
        b"n,,n=alice,r=abc,x",
        b"n,,n=alice,r=abc\0",
        b"n,,n=alice\0,r=abc",
        b"n,,r=abc,n=alice",
    ],
)
def test_a_malformed_first_message_is_refused(first: bytes) -> None:
    services = Services()
    services.add_user("alice", "x")
    with pytest.raises(SaslError, match="Invalid SCRAM client first message format") as caught:
        evaluate(server_of(services), first)
    assert "alice" not in str(caught.value)


def test_a_large_message_is_refused() -> None:
    services = Services()
    for message in (b"n,,n=alice,r=" + b"x" * 20_000, b"n,,n=" + b"x" * 500_000 + b",r=abc"):
        with pytest.raises(SaslError, match="Invalid SCRAM client first message format"):
            evaluate(server_of(services), message)


def test_a_replayed_or_changed_final_message_is_refused() -> None:
    services = Services()
    services.add_user("alice", "x")
    client = ScramClient("SCRAM-SHA-256", "alice", "x")
    server = server_of(services)
    final = client.final(evaluate(server, client.first()))
    other = server_of(services)
    evaluate(other, client.first())
    with pytest.raises(SaslError, match="Invalid client nonce"):
        evaluate(other, final)
    evaluate(server, final)
    with pytest.raises(SaslError, match="after the end"):
        evaluate(server, final)


def test_any_cut_and_any_changed_byte_of_the_final_message_fails() -> None:
    services = Services()
    services.add_user("alice", "x")
    client = ScramClient("SCRAM-SHA-256", "alice", "x")
    generator = random.Random(21)
    for turn in range(400):
        server = server_of(services)
        final = client.final(evaluate(server, client.first()))
        if turn < len(final):
            changed = final[:turn]
        else:
            at = generator.randrange(len(final))
            changed = final[:at] + bytes([final[at] ^ (1 << generator.randrange(8))]) + final[at + 1 :]
        try:
            evaluate(server, changed)
        except SaslError:
            continue
        # The bits of a last base64 digit that carry nothing may change.
        assert base64.b64decode(changed.rpartition(b"p=")[2]) == base64.b64decode(final.rpartition(b"p=")[2])


# --- delegation tokens ------------------------------------------------------------------------------------------------


def token_of(token_id: str, expires: int = 2**60) -> TokenInformation:
    return TokenInformation(token_id, ALICE, KafkaPrincipal("User", "bob"), (), 1, 2**60, expires)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_logs_its_owner_in(mechanism: str) -> None:
    services = Services()
    services.tokens.update(token_of("id"))
    password = base64.b64encode(services.tokens.hmac("id")).decode()
    for extension in (",tokenauth=true", ",other=1,tokenauth=TRUE"):
        server = log_in(services, mechanism, "id", password, extensions=extension)
        assert (server.authorization_id, server.session_expires_ms) == ("alice", 2**60)
        assert server.properties == {"token_authenticated": True}


def test_a_token_is_no_user_and_a_user_is_no_token() -> None:
    services = Services()
    services.add_user("alice", "x")
    services.tokens.update(token_of("id"))
    secret = base64.b64encode(services.tokens.hmac("id")).decode()
    for user, password, extensions in (
        ("id", secret, ""),
        ("id", secret, ",tokenauth=false"),
        ("alice", "x", ",tokenauth=true"),
        ("other", secret, ",tokenauth=true"),
    ):
        server, client = server_of(services), ScramClient("SCRAM-SHA-256", user, password, extensions=extensions)
        final = client.final(evaluate(server, client.first()))
        with pytest.raises(SaslError, match="Invalid client credentials"):
            evaluate(server, final)


def test_an_expired_token_fails_as_an_unknown_one() -> None:
    services = Services()
    services.tokens.update(token_of("id", expires=1000))
    secret = base64.b64encode(services.tokens.hmac("id")).decode()
    server = server_of(services)
    client = ScramClient("SCRAM-SHA-256", "id", secret, extensions=",tokenauth=true")
    final = client.final(evaluate(server, client.first()))
    with pytest.raises(SaslError, match="Invalid client credentials"):
        evaluate(server, final)
    assert server.session_expires_ms is None


def test_a_token_of_an_owner_that_is_no_user_logs_nobody_in() -> None:
    # A broker of Apache Kafka stores such tokens; the login would be of the user with the owner's name.
    services = Services()
    services.tokens.update(replace(token_of("id"), owner=KafkaPrincipal("Group", "admin")))
    secret = base64.b64encode(services.tokens.hmac("id")).decode()
    server = server_of(services)
    client = ScramClient("SCRAM-SHA-256", "id", secret, extensions=",tokenauth=true")
    final = client.final(evaluate(server, client.first()))
    with pytest.raises(SaslError, match="Invalid client credentials"):
        evaluate(server, final)


# --- credentials ------------------------------------------------------------------------------------------------------


def test_a_credential_survives_its_text() -> None:
    made = credential_of_password(ScramMechanism.SCRAM_SHA_512, "x", 8192)
    text = encode_credential(made)
    assert decode_credential(text) == made
    assert text.startswith("salt=")
    assert text.endswith(",iterations=8192")
    assert base64.b64encode(made.stored_key).decode() not in repr(made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SECRET",
        "salt=,stored_key=,server_key=",
        "salt=,stored_key=,server_key=,iterations=x",
        "salt=,stored_key=,server_key=,iterations=-1",
        "salt=,stored_key=,server_key=,iterations=99999999999",
        "salt=?,stored_key=SECRET,server_key=,iterations=4096",
        "salt=,stored_key=,server_key=,iterations=4096,more=SECRET",
    ],
)
def test_other_texts_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match="SCRAM credential") as caught:
        decode_credential(text)
    assert "SECRET" not in str(caught.value)


def test_the_cache_follows_a_users_keys() -> None:
    services = Services()
    services.add_user("alice", "x")
    assert services.credentials.credential("SCRAM-SHA-256", "alice") is not None
    only = {"SCRAM-SHA-512": encode_credential(credential_of_password(ScramMechanism.SCRAM_SHA_512, "y"))}
    assert services.credentials.update("alice", {**only, "producer_byte_rate": "10"}) == []
    assert services.credentials.credential("SCRAM-SHA-256", "alice") is None
    assert services.credentials.update("alice", {"SCRAM-SHA-512": "broken"}) == ["SCRAM-SHA-512"]
    assert services.credentials.credential("SCRAM-SHA-512", "alice") is None
