"""A broker as a client of brokers: here of itself, over each protocol and mechanism."""

from __future__ import annotations

import asyncio

import pytest

from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of, inter_broker_client_config
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    StaleMetadataError,
    UnsupportedVersionError,
)
from kafkapy.metadata.cache import MetadataCache
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing import Broker
from kafkapy.types import Endpoint

USERS = {"admin": 'se"cret', "ann": "x"}


async def connected(config: ClientConfig) -> int:
    """The controller's id, from a client with this configuration."""
    network = NetworkClient(config)
    try:
        await network.start()
        controller = network.cluster.controller_id
        assert controller is not None
        return controller
    finally:
        await network.close()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_broker_connects_as_its_own_user(protocol: str, mechanism: str) -> None:
    users = USERS if protocol.startswith("SASL") else None
    with Broker(security=protocol, users=users, mechanisms=[mechanism], ssl_client_auth="required") as broker:
        config = inter_broker_client_config(broker.server.config, [broker.bootstrap_servers])
        assert config["security.protocol"] == protocol
        assert USERS["admin"] not in repr(config)
        assert asyncio.run(connected(config)) == 1


def test_another_password_is_refused() -> None:
    with Broker(security="SASL_PLAINTEXT", users=USERS, mechanisms=["PLAIN"]) as broker:
        config = inter_broker_client_config(broker.server.config, [broker.bootstrap_servers])
        jaas = config["sasl.jaas.config"].value.replace('password="se', 'password="other')
        with pytest.raises(SaslAuthenticationFailedError):
            asyncio.run(connected(config.replaced(**{"sasl.jaas.config": jaas})))


def test_keys_of_the_listener_go_before_those_of_the_broker() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = inter_broker_client_config(
        BrokerConfig(
            {
                "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
                "listener.security.protocol.map": "INSIDE:SASL_SSL,OUTSIDE:PLAINTEXT",
                "inter.broker.listener.name": "INSIDE",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "ssl.truststore.location": "/all.jks",
                "ssl.endpoint.identification.algorithm": "",
                "listener.name.inside.ssl.truststore.location": "/inside.jks",
                "listener.name.inside.plain.sasl.jaas.config": f'{module} username="b" password="c";',
                "listener.name.outside.ssl.keystore.location": "/outside.jks",
            }
        ),
        ["other:9093"],
    )
    assert config["ssl.truststore.location"] == "/inside.jks"
    assert config["ssl.keystore.location"] is None
    assert config["ssl.endpoint.identification.algorithm"] == ""
    assert config["sasl.mechanism"] == "PLAIN"
    assert 'username="b"' in config["sasl.jaas.config"].value
    assert config["bootstrap.servers"] == ["other:9093"]


# --- InterBrokerClient ------------------------------------------------------------------------------------------------


def client_of(broker: Broker, endpoint: Endpoint | None = None) -> InterBrokerClient:
    """A client of a broker under the id 1; `endpoint` instead of the broker's listener."""
    cache: MetadataCache = broker.server.context.metadata_cache
    listener = broker.server.config.inter_broker_listener_name
    known = endpoints_of(cache, listener) if endpoint is None else {1: endpoint}.get
    return InterBrokerClient(broker.server.config, 7, "test", known)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_request_in_the_newest_and_in_a_given_version(protocol: str) -> None:
    users = USERS if protocol.startswith("SASL") else None

    async def ask(broker: Broker) -> None:
        client = client_of(broker)
        try:
            assert (await client.send(1, MetadataRequest(topics=None))).controller_id == 1
            # The controller is a field of versions 1 and later.
            assert (await client.send(1, MetadataRequest(topics=[]), version=0)).controller_id == -1
            with pytest.raises(StaleMetadataError):
                await client.send(2, MetadataRequest(topics=None))
            with pytest.raises(UnsupportedVersionError, match="versions 99 to 99"):
                await client.send(1, MetadataRequest(topics=None), version=99)
        finally:
            await client.close()
            await client.close()

    with Broker(security=protocol, users=users, mechanisms=["PLAIN"], ssl_client_auth="required") as broker:
        asyncio.run(ask(broker))


def test_a_lost_connection_opens_again() -> None:
    async def ask(broker: Broker) -> None:
        client = client_of(broker)
        try:
            await client.send(1, ListGroupsRequest())
            client.disconnect(1)
            client.disconnect(1)
            assert (await client.send(1, ListGroupsRequest())).error_code == 0
        finally:
            await client.close()

    with Broker() as broker:
        asyncio.run(ask(broker))


def test_a_broker_that_does_not_listen() -> None:
    async def ask(broker: Broker) -> None:
        client = client_of(broker, Endpoint("PLAINTEXT", "127.0.0.1", 1))
        try:
            with pytest.raises(KafkaConnectionError, match="refused"):
                await client.send(1, ListGroupsRequest())
        finally:
            await client.close()

    with Broker() as broker:
        asyncio.run(ask(broker))
