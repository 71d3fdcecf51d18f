"""The same SASL exchanges, SCRAM changes and token requests with Apache Kafka and with kafkapy: equal answers
(make interop-java).

Two answers differ on purpose. Kafka refuses an unknown SCRAM user at its first message, kafkapy only at the proof, as a
wrong password. And kafkapy answers another mechanism at a re-authentication with an error, where Kafka only closes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.conftest import Client
from broker.handlers.tokens import create, describe, expire, renew
from broker.sasl_broker import LISTENER, PLAIN_USERS, handshake, log_in_plain, sasl_config, token
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka, free_port
from security.sasl.scram_client import ScramClient

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

pytestmark = JAVA

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion
VERSIONS_ASKED = ApiVersionsRequest(client_software_name="test", client_software_version="1")
SESSION_MS = "60000"


class Peer:
    """A broker with the listeners PLAINTEXT and SASL_PLAINTEXT."""

    def __init__(self, plain_port: int, sasl_port: int) -> None:
        self._ports = {"PLAINTEXT": plain_port, LISTENER: sasl_port}
        self._opened: list[Client] = []

    def open(self, listener: str = LISTENER) -> Client:
        client = Client("127.0.0.1", self._ports[listener])
        client.socket.settimeout(20)
        self._opened.append(client)
        return client

    def logged_in(self, user: str = "alice") -> Client:
        client = self.open()
        assert log_in_plain(client, user).error_code == ErrorCode.NONE
        return client

    def close(self) -> None:
        for client in self._opened:
            client.close()


def keys(plain_port: int, sasl_port: int) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password}"' for user, password in PLAIN_USERS.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    prefix = f"listener.name.{LISTENER.lower()}."
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain_port},{LISTENER}://127.0.0.1:{sasl_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain_port},{LISTENER}://127.0.0.1:{sasl_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}plain.sasl.jaas.config": f"{module} required {users};",
        f"{prefix}scram-sha-256.sasl.jaas.config": f"{scram} required;",
        f"{prefix}scram-sha-512.sasl.jaas.config": f"{scram} required;",
        f"{prefix}scram-sha-512.connections.max.reauth.ms": SESSION_MS,
        "delegation.token.secret.key": "secret",
    }


def add_user(peer: Peer, user: str, password: str) -> None:
    """The user in both mechanisms; returns when it can log in: brokers learn of users from the controller."""
    for mechanism in (1, 2):  # KRaft takes no two mechanisms of a user in one request
        upsertions = [upsertion(user, mechanism, 4096, password)]
        alter = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
        assert peer.open("PLAINTEXT")(alter, 0).results[0].error_code == ErrorCode.NONE
    deadline = time.monotonic() + 30
    while log_in(peer.open(), "SCRAM-SHA-512", user, password)[-1][0] != ErrorCode.NONE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def upsertion(user: str, mechanism: int, iterations: int = 4096, password: str = "x") -> Upsertion:
    name = "sha512" if mechanism == 2 else "sha256"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salt of the test", max(iterations, 1))
    return Upsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt of the test", salted_password=salted
    )


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def peers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Peer]]:
    """Apache Kafka, and kafkapy."""
    kafka = ApacheKafka(with_jars(request.param), tmp_path_factory.mktemp("kafka"))
    theirs = keys(kafka.port, free_port())
    theirs["listeners"] += f",CONTROLLER://127.0.0.1:{kafka.controller_port}"
    theirs["listener.security.protocol.map"] = f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT"
    kafka.overrides |= theirs
    kafka.start()
    sasl_port = int(theirs["advertised.listeners"].rpartition(":")[2])
    ours = keys(0, 0)
    del ours["advertised.listeners"], ours["inter.broker.listener.name"]
    config = sasl_config(tmp_path_factory.mktemp("kafkapy"), ours | {"inter.broker.listener.name": "PLAINTEXT"})
    try:
        with KafkaServer(config) as server:
            both = [Peer(kafka.port, sasl_port), Peer(*(endpoint.port for endpoint in server.endpoints))]
            for each in both:
                add_user(each, "scram", "pencil")
            yield both
            for each in both:
                each.close()
    finally:
        kafka.stop()


def log_in(client: Client, mechanism: str, user: str, password: str, **options: str) -> list[tuple[Any, ...]]:
    """The answers to a login by SCRAM, without what is random."""
    handshake(client, mechanism)
    exchange = ScramClient(mechanism, user, password, **options)
    challenge = token(client, exchange.first())
    answers = [(challenge.error_code, challenge.error_message)]
    if challenge.error_code == ErrorCode.NONE:
        response = token(client, exchange.final(challenge.auth_bytes))
        answers[0] += (exchange.iterations, exchange.salt)
        answers.append((response.error_code, response.error_message, response.session_lifetime_ms))
    return answers


def answer(response: Any) -> tuple[Any, ...]:
    return response.error_code, response.error_message, response.auth_bytes, response.session_lifetime_ms


def plain(data: bytes, version: int = 2) -> Callable[[Peer], Any]:
    def run(peer: Peer) -> Any:
        client = peer.open()
        shaken = handshake(client, "PLAIN")
        answered = answer(token(client, data, version))
        return shaken.error_code, sorted(shaken.mechanisms), answered, answered[0] != 0 and client.is_closed()

    return run


def scram(password: str, mechanism: str = "SCRAM-SHA-256", **options: str) -> Callable[[Peer], Any]:
    def run(peer: Peer) -> Any:
        client = peer.open()
        answers = log_in(client, mechanism, "scram", password, **options)
        return answers, answers[-1][0] != 0 and client.is_closed()

    return run


def unknown_mechanism(peer: Peer) -> Any:
    client = peer.open()
    response = handshake(client, "GSSAPI")
    return response.error_code, sorted(response.mechanisms), client.is_closed()


def malformed_scram(peer: Peer) -> Any:
    client = peer.open()
    handshake(client, "SCRAM-SHA-256")
    return answer(token(client, b"nonsense")), client.is_closed()


def request_before(peer: Peer) -> Any:
    client = peer.open()
    client.send_frame(b"\0\x03\0\0\0\0\0\x09\xff\xff\0\0\0\0")
    return client.is_closed()


def token_before_handshake(peer: Peer) -> Any:
    client = peer.open()
    client.send_frame(b"\0\x24\0\0\0\0\0\x09\xff\xff\0\0\0\x01x")
    return client.is_closed()


def second_handshake(peer: Peer) -> Any:
    client = peer.open()
    handshake(client, "SCRAM-SHA-256")
    response = handshake(client, "SCRAM-SHA-256")
    return response.error_code, client.is_closed()


def versions_during_the_exchange(peer: Peer) -> Any:
    client = peer.open()
    handshake(client, "SCRAM-SHA-256")
    return client(VERSIONS_ASKED, 3).error_code, client.is_closed()


def versions_twice(peer: Peer) -> Any:
    client = peer.open()
    first = client(VERSIONS_ASKED, 3).error_code
    client.send_frame(b"\0\x12\0\0\0\0\0\x09\xff\xff")
    return first, client.is_closed()


def tokens_without_header(peer: Peer) -> Any:
    good, bad = peer.open(), peer.open()
    for client in (good, bad):
        handshake(client, "PLAIN", 0)
    good.send_frame(b"\0alice\0wonder")
    bad.send_frame(b"\0alice\0wrong")
    return good.receive_frame(), bad.is_closed()


def after_the_login(peer: Peer) -> Any:
    client = peer.logged_in()
    shaken = handshake(client, "PLAIN")
    again = answer(token(client, b"\0alice\0wonder"))
    return shaken.error_code, shaken.mechanisms, again, client(VERSIONS_ASKED, 3).error_code


def renewal(peer: Peer) -> Any:
    client = peer.open()
    answers = [log_in(client, "SCRAM-SHA-512", "scram", "pencil") for _ in range(2)]
    return answers, handshake(client, "SCRAM-SHA-512").error_code


def wrong_password_at_renewal(peer: Peer) -> Any:
    client = peer.open()
    log_in(client, "SCRAM-SHA-512", "scram", "pencil")
    return log_in(client, "SCRAM-SHA-512", "scram", "wrong"), client.is_closed()


def tokens(peer: Peer) -> Any:
    """The codes of the token requests, and the parts of the answers that are not random."""
    alice, bob = peer.logged_in("alice"), peer.logged_in("bob")
    made = create(alice, renewers=["bob"])
    deadline = time.monotonic() + 30
    while not [each for each in describe(alice, ["alice"]).tokens if each.token_id == made.token_id]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    seen = [
        (made.error_code, made.principal_name, made.token_requester_principal_name, len(made.token_id), len(made.hmac)),
        (made.expiry_timestamp_ms - made.issue_timestamp_ms, made.max_timestamp_ms - made.issue_timestamp_ms),
        create(alice, renewers=["g"], renewer_type="Group").error_code,
        create(peer.open("PLAINTEXT")).error_code,
        renew(peer.open("PLAINTEXT"), made.hmac).error_code,
        describe(peer.open("PLAINTEXT")).error_code,
        renew(bob, made.hmac, 10_000).error_code,
        renew(peer.logged_in("admin"), made.hmac, 10_000).error_code,
        renew(alice, b"unknown").error_code,
        expire(peer.logged_in("admin"), made.hmac).error_code,
        expire(alice, b"unknown").error_code,
        len(describe(alice, []).tokens),
        len(describe(alice, ["nobody"]).tokens),
        expire(bob, made.hmac).error_code,
    ]
    while describe(alice, ["alice"]).tokens:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [*seen, expire(alice, made.hmac).error_code]


def scram_changes(*changes: Any) -> Callable[[Peer], Any]:
    def run(peer: Peer) -> Any:
        response = peer.open("PLAINTEXT")(
            AlterUserScramCredentialsRequest(
                deletions=[each for each in changes if isinstance(each, Deletion)],
                upsertions=[each for each in changes if isinstance(each, Upsertion)],
            ),
            0,
        )
        return sorted((each.user, each.error_code) for each in response.results)

    return run


def described_users(*names: str) -> Callable[[Peer], Any]:
    def run(peer: Peer) -> Any:
        users = [DescribeUserScramCredentialsRequest.User(name=each) for each in names]
        response = peer.open("PLAINTEXT")(DescribeUserScramCredentialsRequest(users=users), 0)
        return sorted(
            (each.user, each.error_code, sorted((info.mechanism, info.iterations) for info in each.credential_infos))
            for each in response.results
        )

    return run


SCENARIOS: dict[str, Callable[[Peer], Any]] = {
    **{f"a login in version {version}": plain(b"\0alice\0wonder", version) for version in range(3)},
    "a login with authorization id": plain(b"alice\0alice\0wonder"),
    "another authorization id": plain(b"bob\0alice\0wonder"),
    "a wrong password": plain(b"\0alice\0wrong"),
    "an unknown user": plain(b"\0nobody\0wonder"),
    "no password": plain(b"\0alice\0"),
    "no user": plain(b"\0\0wonder"),
    "one part": plain(b"x"),
    "four parts": plain(b"\0a\0b\0c\0d"),
    "an empty token": plain(b""),
    "SCRAM": scram("pencil"),
    "SCRAM with a session": scram("pencil", "SCRAM-SHA-512"),
    "SCRAM with an extension": scram("pencil", extensions=",other=x"),
    "SCRAM with authorization id": scram("pencil", authzid="scram"),
    "SCRAM with another authorization id": scram("pencil", authzid="alice"),
    "SCRAM with a wrong password": scram("wrong"),
    "an unknown mechanism": unknown_mechanism,
    "a malformed first message": malformed_scram,
    "a request before the login": request_before,
    "a token before the handshake": token_before_handshake,
    "a second handshake": second_handshake,
    "versions during the exchange": versions_during_the_exchange,
    "versions twice": versions_twice,
    "tokens without header": tokens_without_header,
    "SASL after the login": after_the_login,
    "a renewal": renewal,
    "a wrong password at a renewal": wrong_password_at_renewal,
    "delegation tokens": tokens,
    "changes of users": scram_changes(
        upsertion("new", 1),
        upsertion("", 1),
        upsertion("few", 1, 4095),
        upsertion("many", 2, 16385),
        upsertion("twice", 1),
        upsertion("twice", 1),
        Deletion(name="nobody", mechanism=1),
        Deletion(name="unknown", mechanism=7),
    ),
    "described users": described_users("scram", "nobody", "twice", "twice", ""),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_brokers_answer_alike(peers: list[Peer], scenario: str) -> None:
    theirs, ours = (SCENARIOS[scenario](peer) for peer in peers)
    assert ours == theirs
