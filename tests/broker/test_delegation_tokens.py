"""Delegation tokens on several brokers: they spread, expire and are removed; nodes are Kafka's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from kafkapy.broker.delegation_tokens import DelegationTokenManager
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.delegation_tokens import TOKEN_CHANGES, TOKENS, decode_token, encode_token, token_path
from kafkapy.metadata.memory import MemoryStore
from kafkapy.security.principal import KafkaPrincipal

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "CN=bob,O=x")
CONFIG = BrokerConfig({"delegation.token.secret.key": "secret"})
NOW_MS = 1_700_000_000_000


class SharedStore(MemoryStore):
    """The store of several brokers: none removes a notification that others have not read."""

    is_shared = True


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def with_managers(count: int, test: Callable[..., Awaitable[None]]) -> None:
    async def run() -> None:
        store, clock = SharedStore(), Clock()
        await store.start()
        managers = [DelegationTokenManager(CONFIG, store, clock_ms=clock) for _ in range(count)]
        for each in managers:
            await each.start()
        await test(store, clock, *managers)
        for each in managers:
            await each.stop()
        await store.close()

    asyncio.run(run())


def test_a_token_reaches_other_brokers_and_leaves_them() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager, two: DelegationTokenManager) -> None:
        made = await one.create(ALICE, BOB, [BOB], -1)
        await two._changes.process()
        assert two.cache.token(made.token_id) == made
        assert two.cache.hmac(made.token_id) == one.cache.hmac(made.token_id)
        secret = two.cache.hmac(made.token_id)
        time_ms = await two.renew(BOB, secret, 1000)
        await one._changes.process()
        known = one.cache.token(made.token_id)
        assert known is not None
        assert known.expiry_timestamp == time_ms == NOW_MS + 1000
        await one.expire(ALICE, secret, -1)
        await two._changes.process()
        assert two.cache.token(made.token_id) is None
        assert two.cache.token_of_hmac(secret) is None
        assert await store.children(TOKENS) == []

    with_managers(2, test)


def test_a_broker_that_starts_later_reads_all_tokens() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager) -> None:
        made = [await one.create(ALICE, ALICE, [], -1) for _ in range(3)]
        await store.create(token_path("broken"), b"{}")
        late = DelegationTokenManager(CONFIG, store, clock_ms=clock)
        await late.start()
        assert sorted(each.token_id for each in late.cache.tokens()) == sorted(each.token_id for each in made)
        await late.stop()

    with_managers(1, test)


def test_expired_tokens_are_removed() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager, two: DelegationTokenManager) -> None:
        short, long = await one.create(ALICE, ALICE, [], 1000), await one.create(ALICE, ALICE, [], 5000)
        await two._changes.process()
        clock.now_ms += 1000
        await two.remove_expired()
        assert len(await store.children(TOKENS)) == 2
        clock.now_ms += 1
        await two.remove_expired()
        await one.remove_expired()
        assert await store.children(TOKENS) == [long.token_id]
        for each in (one, two):
            assert each.cache.token(short.token_id) is None
            assert each.cache.token(long.token_id) == long

    with_managers(2, test)


def test_the_node_is_kafkas() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager) -> None:
        made = await one.create(ALICE, BOB, [ALICE, BOB], 5000)
        data, _ = await store.get(f"/delegation_token/tokens/{made.token_id}")
        assert json.loads(data) == {
            "version": 3,
            "owner": "User%3Aalice",
            "tokenRequester": "User%3ACN%3Dbob%2CO%3Dx",
            "renewers": ["User%3Aalice", "User%3ACN%3Dbob%2CO%3Dx"],
            "issueTimestamp": NOW_MS,
            "maxTimestamp": NOW_MS + 5000,
            "expiryTimestamp": NOW_MS + 5000,
            "tokenId": made.token_id,
        }
        assert decode_token(data) == made
        own = await one.create(ALICE, ALICE, [], 5000)
        data, _ = await store.get(f"/delegation_token/tokens/{own.token_id}")
        value = json.loads(data)
        assert (value["version"], "tokenRequester" in value) == (1, False), "brokers before 3.3 read no other version"
        assert decode_token(data) == own

    with_managers(1, test)


def test_a_notification_has_the_id() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager) -> None:
        one._changes._watch.cancel()  # type: ignore[union-attr]
        made = await one.create(ALICE, ALICE, [], -1)
        (name,) = await store.children(TOKEN_CHANGES)
        assert name == "token_change_0000000000"
        assert (await store.get(f"{TOKEN_CHANGES}/{name}"))[0] == made.token_id.encode()

    with_managers(1, test)


@pytest.mark.parametrize("version", [1, 2])
def test_nodes_of_older_brokers_have_no_requester(version: int) -> None:
    value = {
        "version": version,
        "owner": "User%3Aalice",
        "renewers": [],
        "issueTimestamp": 1,
        "maxTimestamp": 2,
        "expiryTimestamp": 3,
        "tokenId": "x",
    }
    assert decode_token(json.dumps(value).encode()).requester == ALICE


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b'{"version":4}', b'{"version":"3"}', b"\xff", b'{"version":3,"owner":7}']
)
def test_other_nodes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_token(data)


def test_any_cut_of_a_node_is_refused() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager) -> None:
        data = encode_token(await one.create(ALICE, BOB, [BOB], -1))
        for length in range(len(data)):
            with pytest.raises(ValueError):
                decode_token(data[:length])

    with_managers(1, test)


def test_without_a_secret_key_every_call_says_so() -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.start()
        manager = DelegationTokenManager(BrokerConfig({}), store)
        await manager.start()
        for call in (
            manager.create(ALICE, ALICE, [], -1),
            manager.renew(ALICE, b"", -1),
            manager.expire(ALICE, b"", -1),
        ):
            with pytest.raises(KafkaError) as caught:
                await call
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        await manager.remove_expired()
        await manager.stop()
        assert await store.exists(TOKENS) is None
        await store.close()

    asyncio.run(run())


def test_a_token_hides_its_secret() -> None:
    async def test(store: MemoryStore, clock: Clock, one: DelegationTokenManager) -> None:
        made = await one.create(ALICE, ALICE, [], -1)
        secret = one.cache.hmac(made.token_id)
        entry = one.cache._entries[made.token_id]
        assert repr(secret) not in repr(made) + repr(entry)
        credential = one.cache.credential("SCRAM-SHA-256", made.token_id)
        assert credential is not None
        assert repr(credential.stored_key) not in repr(entry)

    with_managers(1, test)
