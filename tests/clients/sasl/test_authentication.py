"""Connections that authenticate by SASL, against brokers that answer as scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from clients.connected import client, groups, list_groups
from clients.fake_broker import Cut, FakeCluster, eventually
from clients.sasl.sasl_broker import REFUSED, SaslSide

from kafkapy.clients.network_client import NetworkClient
from kafkapy.errors import (
    AuthenticationError,
    ConfigError,
    IllegalSaslStateError,
    KafkaConnectionError,
    NoBrokersAvailableError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kafkapy.protocol.registry import ApiKeys

Run = Callable[[Any], Any]
ANN = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "ann", "sasl_plain_password": "hunter2"}
NEVER_IN_TIME = 2**31 - 1


@asynccontextmanager
async def cluster_of(**keys: int) -> AsyncIterator[tuple[FakeCluster, SaslSide]]:
    async with FakeCluster() as cluster:
        yield cluster, SaslSide(cluster[1], {"ann": "hunter2"}, **keys)


def login(cluster: FakeCluster, **keys: object) -> Any:
    return client(cluster.bootstrap, **({**ANN, "sasl_mechanism": "PLAIN"} | keys))


def asked(cluster: FakeCluster) -> list[tuple[int, int]]:
    return [(key, version) for key, version, _ in cluster[1].requests]


@pytest.mark.parametrize("mechanism", ["PLAIN", "scram-sha-256", "SCRAM-SHA-512"])
def test_the_client_authenticates_before_its_first_request(run: Run, mechanism: str) -> None:
    async def scenario() -> None:
        async with cluster_of() as (cluster, side), login(cluster, sasl_mechanism=mechanism) as network:
            assert side.authenticated == 1
            tokens = 1 if mechanism == "PLAIN" else 2
            assert asked(cluster) == [
                (ApiKeys.API_VERSIONS, 0),
                (ApiKeys.SASL_HANDSHAKE, 1),
                *[(ApiKeys.SASL_AUTHENTICATE, 2)] * tokens,
                (ApiKeys.API_VERSIONS, 5),
                (ApiKeys.METADATA, 13),
            ]
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda *_: groups("a")
            assert await list_groups(network) == ["a"]
            assert network.metrics.connection_count == 1

    run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_options_of_jaas_stand_for_name_and_password(run: Run, mechanism: str) -> None:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'org.apache.kafka.common.security.{module} required username="ann" password="hunter2";'

    async def scenario() -> None:
        async with cluster_of() as (cluster, side):
            keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
            async with client(cluster.bootstrap, **keys):
                assert side.authenticated == 1

    run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_raised_at_once_with_broker_and_reason(run: Run, mechanism: str) -> None:
    async def scenario() -> None:
        async with cluster_of() as (cluster, side):
            side.users["ann"] = "another"
            with pytest.raises(SaslAuthenticationFailedError) as raised:
                async with login(cluster, sasl_mechanism=mechanism, bootstrap_timeout_ms=NEVER_IN_TIME):
                    pass
            assert not raised.value.retriable
            for part in (cluster[1].address, "SASL_PLAINTEXT", mechanism, REFUSED):
                assert part in str(raised.value)
            assert "hunter2" not in str(raised.value)
            assert cluster[1].connections == 1, "no second attempt"

    run(scenario())


def test_a_mechanism_that_the_broker_lacks_is_raised_with_those_it_has(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of() as (cluster, side):
            side.mechanisms = ["GSSAPI", "SCRAM-SHA-512"]
            with pytest.raises(UnsupportedSaslMechanismError, match="PLAIN; its mechanisms are: GSSAPI, SCRAM-SHA-512"):
                async with login(cluster):
                    pass

    run(scenario())


def test_a_listener_without_sasl_is_named_as_the_reason(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of() as (cluster, _):
            cluster[1].on[ApiKeys.SASL_HANDSHAKE] = lambda *_: SaslHandshakeResponse(error_code=34, mechanisms=[])
            with pytest.raises(IllegalSaslStateError, match=r"check security\.protocol"):
                async with login(cluster):
                    pass

    run(scenario())


def test_a_broker_without_sasl_authenticate_is_too_old(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of() as (cluster, _):
            del cluster[1].versions[ApiKeys.SASL_AUTHENTICATE]
            with pytest.raises(UnsupportedVersionError, match="SaslAuthenticate"):
                async with login(cluster):
                    pass

    run(scenario())


def test_a_broker_that_does_not_know_the_password_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of() as (cluster, side):
            side.lies = True
            with pytest.raises(SaslAuthenticationFailedError, match="signature is wrong") as raised:
                async with login(cluster, sasl_mechanism="SCRAM-SHA-256"):
                    pass
            assert cluster[1].address in str(raised.value)
            assert asked(cluster)[-1] == (ApiKeys.SASL_AUTHENTICATE, 2), "nothing follows"

    run(scenario())


def test_a_connection_lost_during_the_exchange_is_tried_again(run: Run) -> None:
    def cut(*_: object) -> Any:
        raise Cut

    async def scenario() -> None:
        async with cluster_of() as (cluster, _):
            cluster[1].on[ApiKeys.SASL_AUTHENTICATE] = cut
            with pytest.raises(NoBrokersAvailableError, match=r"during SASL authentication; see security\.protocol"):
                async with login(cluster, bootstrap_timeout_ms=300):
                    pass
            assert cluster[1].connections > 1

    run(scenario())


# --- re-authentication (KIP-368) ----------------------------------------------------------------------------------


async def until_reauthentication(cluster: FakeCluster, number: int = 2) -> None:
    await eventually(lambda: len(cluster[1].seen(ApiKeys.SASL_HANDSHAKE)) >= number)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_client_authenticates_again_on_the_same_connection(run: Run, mechanism: str) -> None:
    async def scenario() -> None:
        async with cluster_of(lifetime_ms=50) as (cluster, side), login(cluster, sasl_mechanism=mechanism) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda *_: groups("a")
            while side.authenticated < 4:
                assert await list_groups(network) == ["a"]
            assert cluster[1].connections == 1
            assert len([key for key, _ in asked(cluster) if key == ApiKeys.API_VERSIONS]) == 2, "only at the start"

    run(scenario())


def test_re_authentications_of_short_sessions_come_no_sooner_than_brokers_allow(run: Run) -> None:
    """A token that ends soon gives a short session; Kafka takes one re-authentication a second."""

    async def scenario() -> None:
        async with cluster_of(lifetime_ms=50) as (cluster, side), login(cluster) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda *_: groups("a")
            # The first one may come at any time, as with Kafka.
            await until_reauthentication(cluster)
            side.pause_s = 1.0
            while side.authenticated < 4:
                assert await list_groups(network) == ["a"]
            assert cluster[1].connections == 1

    run(scenario())


def test_requests_wait_for_the_end_of_a_re_authentication(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of(lifetime_ms=50) as (cluster, side), login(cluster) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda *_: groups("a")
            side.gate.clear()
            side.lifetime_ms = 0
            await until_reauthentication(cluster)
            before = len(cluster[1].requests)
            answers = [asyncio.ensure_future(list_groups(network)) for _ in range(5)]
            await eventually(lambda: network.in_flight(1) == 6)
            side.gate.set()
            assert await asyncio.gather(*answers) == [["a"]] * 5
            after = [key for key, _ in asked(cluster)[before:]]
            assert after in (
                [ApiKeys.LIST_GROUPS] * 5,
                [ApiKeys.SASL_AUTHENTICATE, *[ApiKeys.LIST_GROUPS] * 5],
            ), "no other request comes within the exchange"

    run(scenario())


def test_a_request_in_flight_gets_its_answer(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of(lifetime_ms=50) as (cluster, side), login(cluster) as network:
            release = asyncio.Event()

            async def slow(*_: object) -> Any:
                await release.wait()
                return groups("a")

            cluster[1].on[ApiKeys.LIST_GROUPS] = slow
            side.lifetime_ms = 0
            answer = asyncio.ensure_future(list_groups(network))
            await eventually(lambda: network.in_flight(1) == 2)  # the handshake waits behind it
            release.set()
            assert await answer == ["a"]
            await eventually(lambda: side.authenticated >= 2)
            assert await list_groups(network) == ["a"]
            assert cluster[1].connections == 1

    run(scenario())


def test_a_failed_re_authentication_closes_the_connection_and_is_raised(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of(lifetime_ms=50) as (cluster, side), login(cluster, reconnect_backoff_ms=5000) as network:
            side.users["ann"] = "changed"
            side.gate.clear()
            await until_reauthentication(cluster)
            waiting = asyncio.ensure_future(list_groups(network))
            await eventually(lambda: network.in_flight(1) == 2)
            side.gate.set()
            with pytest.raises(KafkaConnectionError):
                await waiting
            with pytest.raises(SaslAuthenticationFailedError, match=REFUSED):
                await list_groups(network)
            assert cluster[1].connections == 1

    run(scenario())


def test_a_close_ends_a_re_authentication(run: Run) -> None:
    async def scenario() -> None:
        async with cluster_of(lifetime_ms=50) as (cluster, side):
            async with login(cluster) as network:
                side.gate.clear()
                await until_reauthentication(cluster)
            assert network.closed
            side.gate.set()

    run(scenario())


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"sasl_mechanism": "CRAM-MD5", "sasl_plain_username": None}, "must be one of PLAIN"),
        ({"sasl_plain_password": None}, "needs the option password"),
        ({"sasl_mechanism": None}, "sasl.plain.username is for one of PLAIN"),
        ({"sasl_jaas_config": "x.PlainLoginModule required;"}, "contradicts"),
    ],
)
def test_wrong_settings_are_refused_before_a_connection(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        login_config(**keys)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        ("a required b=c; d required e=f;", "one login module, not 2"),
        ("org.apache.kafka.common.security.scram.ScramLoginModule required;", "not for PLAIN"),
        ("org.apache.kafka.common.security.plain.PlainLoginModule required", "semicolon"),
        ('org.apache.kafka.common.security.plain.PlainLoginModule required username="a";', "option password"),
    ],
)
def test_a_wrong_jaas_config_is_refused_without_its_text(jaas: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        login_config(sasl_jaas_config=jaas, sasl_plain_username=None, sasl_plain_password=None)
    assert "username" not in str(raised.value)


def login_config(**keys: object) -> NetworkClient:
    from kafkapy.config.clients import COMMON, ClientConfig

    return NetworkClient(ClientConfig(COMMON, {}, **({**ANN, "sasl_mechanism": "PLAIN"} | keys)))


def test_authentication_errors_have_one_base() -> None:
    for kind in (SaslAuthenticationFailedError, UnsupportedSaslMechanismError, IllegalSaslStateError):
        assert issubclass(kind, AuthenticationError)
