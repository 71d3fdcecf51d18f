"""SCRAM credentials and delegation tokens of two brokers on one ZooKeeper: each sees the other's changes by itself."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
from waiting import until

from kafkapy.broker.delegation_tokens import DelegationTokenManager
from kafkapy.broker.scram_credentials import (
    Deletion,
    ScramCredentials,
    Upsertion,
    follow,
    unknown_users_secret,
)
from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.znodes import CONFIG_USERS
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.scram import CredentialCache

ALICE = KafkaPrincipal("User", "alice")
CONFIG = BrokerConfig({"delegation.token.secret.key": "secret"})
USER = "a b,c=d"


class Broker:
    """The parts of a broker that know users and tokens."""

    def __init__(self, connect: str) -> None:
        self.store = ZooKeeperStore(connect)
        self.repository = ConfigRepository(self.store)
        self.scram = ScramCredentials(self.store, self.repository)
        self.tokens = DelegationTokenManager(CONFIG, self.store)

    async def start(self) -> None:
        await self.store.start()
        await self.store.ensure_path(f"/config/{CONFIG_USERS}")
        await self.repository.start((CONFIG_USERS,))
        self.cache = CredentialCache(await unknown_users_secret(self.store))
        follow(self.repository, self.cache)
        await self.tokens.start()

    async def stop(self) -> None:
        await self.tokens.stop()
        await self.repository.stop()
        await self.store.close()


@pytest.fixture
def run(zookeeper: str) -> Callable[[Callable[[Broker, Broker], Awaitable[None]]], None]:
    """Runs a test with two brokers in a chroot of its own."""

    def call(test: Callable[[Broker, Broker], Awaitable[None]]) -> None:
        async def body() -> None:
            connect = f"{zookeeper}/logins-{uuid.uuid4().hex}"
            brokers = [Broker(connect), Broker(connect)]
            for each in brokers:
                await each.start()
            try:
                await test(*brokers)
            finally:
                for each in brokers:
                    await each.stop()

        asyncio.run(body())

    return call


def test_a_credential_reaches_the_other_broker(run: Callable[..., None]) -> None:
    async def test(one: Broker, two: Broker) -> None:
        def known() -> bool:
            return two.cache.credential("SCRAM-SHA-256", USER) is not None

        assert await one.scram.alter([], [Upsertion(USER, 1, 4096, b"salt", b"x" * 32)]) == {USER: None}
        await until(known, "the credential")
        assert await two.scram.users() == [USER]
        assert await two.scram.alter([Deletion(USER, 1)], []) == {USER: None}
        await until(lambda: one.cache.credential("SCRAM-SHA-256", USER) is None, "its end")
        unknown = one.cache.unknown("SCRAM-SHA-256", "nobody")
        assert unknown.salt == two.cache.unknown("SCRAM-SHA-256", "nobody").salt

    run(test)


def test_brokers_that_change_one_user_at_the_same_time_lose_nothing(run: Callable[..., None]) -> None:
    async def test(one: Broker, two: Broker) -> None:
        results = await asyncio.gather(
            *(
                broker.scram.alter([], [Upsertion(USER, mechanism, 4096 + round_, b"salt", b"x" * 32)])
                for round_ in range(5)
                for broker, mechanism in ((one, 1), (two, 2))
            )
        )
        assert results == [{USER: None}] * 10
        described = (await one.scram.describe([USER]))[USER]
        assert isinstance(described, list)
        assert [each.mechanism for each in described] == [1, 2]

    run(test)


def test_a_token_reaches_the_other_broker(run: Callable[..., None]) -> None:
    async def test(one: Broker, two: Broker) -> None:
        made = await one.tokens.create(ALICE, ALICE, [], -1)
        await until(lambda: two.tokens.cache.token(made.token_id) == made, "the token")
        secret = two.tokens.cache.hmac(made.token_id)
        time_ms = await two.tokens.renew(ALICE, secret, 1000)

        def renewed() -> bool:
            token = one.tokens.cache.token(made.token_id)
            return token is not None and token.expiry_timestamp == time_ms

        await until(renewed, "the renewal")
        await one.tokens.expire(ALICE, secret, -1)
        await until(lambda: two.tokens.cache.token(made.token_id) is None, "its end")

    run(test)
