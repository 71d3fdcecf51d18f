"""ACLs in the metadata store: Kafka's nodes, changes of several brokers, and what must not be lost."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from kafkapy.errors import ErrorCode
from kafkapy.metadata import acl_store
from kafkapy.metadata.acl_store import AclStore
from kafkapy.metadata.acl_znodes import ACL_PATHS
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import (
    BadVersionError,
    MetadataStore,
    Operation,
    Stat,
    StoreCorruptError,
    StoreUnavailableError,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.security.authorizer.bindings import ResourcePattern
from kafkapy.security.authorizer.masks import Rules, bit_of
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
ORD = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "ord", PatternType.PREFIXED)
READ = bit_of(AclOperation.READ, AclPermissionType.ALLOW)
WRITE = bit_of(AclOperation.WRITE, AclPermissionType.ALLOW)
NO_WRITE = bit_of(AclOperation.WRITE, AclPermissionType.DENY)
ALICE, BOB = ("User:alice", "*"), ("User:bob", "10.0.0.1")


class Shared(MemoryStore):
    """A memory store that several brokers use, one after the other at each await."""

    @property
    def is_shared(self) -> bool:
        return True

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found = await super().get_many(paths)
        await asyncio.sleep(0)
        return found


class Broker:
    """An AclStore, and what it told."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.acls = AclStore(store)
        self.rules: dict[ResourcePattern, Rules] = {}
        self.told = 0

    async def start(self) -> Broker:
        await self.acls.start(self._changed)
        return self

    async def _changed(self, changed: Mapping[ResourcePattern, Rules]) -> None:
        self.told += 1
        self.rules |= changed

    async def add(self, pattern: ResourcePattern, key: tuple[str, str], mask: int) -> None:
        async def edit(present: Rules) -> Rules:
            return {**present, key: present.get(key, 0) | mask}

        assert await self.acls.change({pattern: edit}) == {}

    async def clear(self, *patterns: ResourcePattern) -> dict[ResourcePattern, Any]:
        async def edit(present: Rules) -> Rules:
            return {}

        return dict(await self.acls.change(dict.fromkeys(patterns, edit)))

    async def stop(self) -> None:
        await self.acls.stop()


def run(store: MetadataStore, work: Callable[[MetadataStore], Awaitable[None]]) -> None:
    async def body() -> None:
        await store.start()
        try:
            await asyncio.wait_for(work(store), 60)
        finally:
            await store.close()

    asyncio.run(body())


@pytest.fixture(params=["memory", "shared", "embedded", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MetadataStore:
    if request.param == "zookeeper":
        return ZooKeeperStore(f"{request.getfixturevalue('zookeeper')}/{uuid.uuid4().hex}")
    return {"memory": MemoryStore, "shared": Shared, "embedded": lambda: EmbeddedStore(tmp_path)}[request.param]()


@pytest.fixture(params=["shared", "zookeeper"])
def shared(request: pytest.FixtureRequest) -> MetadataStore:
    if request.param == "zookeeper":
        return ZooKeeperStore(f"{request.getfixturevalue('zookeeper')}/{uuid.uuid4().hex}")
    return Shared()


def test_acls_lie_in_kafkas_nodes(store: MetadataStore) -> None:
    async def work(store: MetadataStore) -> None:
        broker = await Broker(store).start()
        await broker.add(ORDERS, ALICE, READ)
        await broker.add(ORDERS, BOB, NO_WRITE)
        await broker.add(ORD, ALICE, WRITE)
        assert all(each is not None for each in await store.get_many(ACL_PATHS))
        value, _ = await store.get("/kafka-acl/Topic/orders")
        assert json.loads(value) == {
            "version": 1,
            "acls": [
                {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
                {"principal": "User:bob", "permissionType": "Deny", "operation": "Write", "host": "10.0.0.1"},
            ],
        }
        value, _ = await store.get("/kafka-acl-extended/prefixed/TransactionalId/ord")
        assert [each["operation"] for each in json.loads(value)["acls"]] == ["Write"]
        changes = await store.children("/kafka-acl-changes"), await store.children("/kafka-acl-extended-changes")
        if store.is_shared:
            literal, _ = await store.get(f"/kafka-acl-changes/{changes[0][0]}")
            assert (literal, len(changes[0])) == (b"TOPIC:orders", 2)
            extended, _ = await store.get(f"/kafka-acl-extended-changes/{changes[1][0]}")
            assert json.loads(extended) == {
                "version": 1,
                "resourceType": "TRANSACTIONAL_ID",
                "name": "ord",
                "patternType": "PREFIXED",
            }
        else:
            assert changes == ([], [])  # nobody else would read them
        assert await broker.clear(ORDERS, ORD) == {}
        assert await store.exists("/kafka-acl/Topic/orders") is None
        assert broker.rules == {ORDERS: {}, ORD: {}}
        await broker.stop()

    run(store, work)


def test_a_broker_begins_with_what_is_stored(store: MetadataStore) -> None:
    async def work(store: MetadataStore) -> None:
        first = await Broker(store).start()

        async def edit(present: Rules) -> Rules:
            return {ALICE: READ}

        patterns = [ResourcePattern(ResourceType.GROUP, f"g{number}") for number in range(600)]
        assert await first.acls.change(dict.fromkeys(patterns, edit)) == {}
        assert len(first.rules) == 600
        await first.stop()
        second = await Broker(store).start()
        assert second.rules == first.rules
        await second.stop()

    run(store, work)


def test_changes_reach_other_brokers(shared: MetadataStore) -> None:
    async def work(store: MetadataStore) -> None:
        first, second = await Broker(store).start(), await Broker(store).start()
        await first.add(ORDERS, ALICE, READ)
        await first.add(ORD, BOB, NO_WRITE)
        await until(lambda: second.rules == {ORDERS: {ALICE: READ}, ORD: {BOB: NO_WRITE}}, "the second broker has both")
        await second.add(ORDERS, ALICE, WRITE)
        await until(lambda: first.rules[ORDERS] == {ALICE: READ | WRITE}, "the first broker has the change")
        await first.clear(ORDERS)
        await until(lambda: second.rules[ORDERS] == {}, "the second broker has the removal")
        await first.stop()
        await second.stop()

    run(shared, work)


def test_changes_of_several_brokers_at_once_are_all_kept(
    shared: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_store, "RETRY_S", 0.001)
    monkeypatch.setattr(acl_store, "MOST_RETRIES", 1000)

    async def work(store: MetadataStore) -> None:
        brokers = [await Broker(store).start() for _ in range(3)]
        keys = [(f"User:u{number}", "*") for number in range(30)]
        await asyncio.gather(
            *(brokers[number % 3].add(ORDERS, key, READ) for number, key in enumerate(keys)),
        )
        expected = dict.fromkeys(keys, READ)
        for broker in brokers:
            await until(lambda broker=broker: broker.rules.get(ORDERS) == expected, "every broker has every ACL")
            await broker.stop()

    run(shared, work)


def test_a_pattern_that_others_keep_changing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_store, "RETRY_S", 0.0)
    monkeypatch.setattr(acl_store, "RETRY_JITTER_S", 0.0)

    class Contested(Shared):
        async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
            if any("orders" in each.path for each in operations):
                raise BadVersionError("/kafka-acl/Topic/orders")
            return await super().commit(operations)

    async def work(store: MetadataStore) -> None:
        broker = await Broker(store).start()

        async def edit(present: Rules) -> Rules:
            return {ALICE: READ}

        failed = await broker.acls.change({ORDERS: edit, ORD: edit})
        assert {pattern: error.code for pattern, error in failed.items()} == {ORDERS: ErrorCode.UNKNOWN_SERVER_ERROR}
        assert broker.rules == {ORD: {ALICE: READ}}
        await broker.stop()

    run(Contested(), work)


def test_a_store_that_is_away_is_an_error_and_changes_nothing() -> None:
    class Away(MemoryStore):
        away = False

        async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
            if self.away:
                raise StoreUnavailableError(operations[0].path, "the disk is full")
            return await super().commit(operations)

    async def work(store: MetadataStore) -> None:
        assert isinstance(store, Away)
        broker = await Broker(store).start()
        await broker.add(ORDERS, ALICE, READ)
        store.away = True
        failed = await broker.clear(ORDERS)
        assert failed[ORDERS].code is ErrorCode.REQUEST_TIMED_OUT
        assert "the disk is full" in str(failed[ORDERS])
        assert broker.rules == {ORDERS: {ALICE: READ}}
        assert broker.acls.rules(ORDERS) == {ALICE: READ}

    run(Away(), work)


def test_nodes_of_other_brokers_are_read_and_what_they_know_more_is_kept(shared: MetadataStore) -> None:
    future = {
        "principal": "User:alice",
        "permissionType": "Allow",
        "operation": "Teleport",
        "host": "*",
        "mood": "good",
    }
    theirs = {
        "acls": [
            {"host": "*", "operation": "READ", "permissionType": "allow", "principal": "User:alice"},
            {"host": "*", "operation": "Idempotent_Write", "permissionType": "DENY", "principal": "User:alice"},
            future,
        ],
        "version": 1,
    }

    async def work(store: MetadataStore) -> None:
        broker = await Broker(store).start()
        await store.create("/kafka-acl/Topic/orders", json.dumps(theirs).encode())
        await store.create("/kafka-acl-changes/acl_changes_", b"Topic:orders", sequential=True)
        denied = bit_of(AclOperation.IDEMPOTENT_WRITE, AclPermissionType.DENY)
        await until(lambda: broker.rules == {ORDERS: {ALICE: READ | denied}}, "the node is read")
        await broker.add(ORDERS, BOB, WRITE)
        value, _ = await store.get("/kafka-acl/Topic/orders")
        assert future in json.loads(value)["acls"]
        assert await broker.clear(ORDERS) == {}
        value, _ = await store.get("/kafka-acl/Topic/orders")
        assert json.loads(value)["acls"] == [future]
        await broker.stop()

    run(shared, work)


@pytest.mark.parametrize("value", [b"not json", b"[]", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[7]}'])
def test_a_node_that_cannot_be_read_takes_no_rule_away(value: bytes) -> None:
    async def work(store: MetadataStore) -> None:
        broker = await Broker(store).start()
        await broker.add(ORDERS, BOB, NO_WRITE)
        await store.set("/kafka-acl/Topic/orders", value)
        await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequential=True)
        await store.create("/kafka-acl-changes/acl_changes_", b"GROUP:g", sequential=True)
        await store.create("/kafka-acl/Group/g", b'{"version":1,"acls":[]}')
        await broker.acls._followers[0].process()
        assert broker.rules[ORDERS] == {BOB: NO_WRITE}
        await broker.stop()

    run(Shared(), work)


@pytest.mark.parametrize("value", [b"not json", b'{"version":2,"acls":[]}'])
def test_a_broker_does_not_begin_without_rules_that_it_cannot_read(value: bytes) -> None:
    # They may deny what another pattern allows. Apache Kafka does not start either.
    async def work(store: MetadataStore) -> None:
        await store.create("/kafka-acl/Topic/orders", value, make_parents=True)
        with pytest.raises(StoreCorruptError, match="the ACLs of TOPIC:LITERAL:orders"):
            await Broker(store).start()

    run(MemoryStore(), work)


@pytest.mark.parametrize(
    "value", [b"", b"nonsense", b"Planet:earth", b"TOPIC:..", b"TOPIC:a/b", b"\xff\xfe", b"TOPIC:\0"]
)
def test_a_notification_that_cannot_be_read_hides_no_other(value: bytes) -> None:
    async def work(store: MetadataStore) -> None:
        first, second = await Broker(store).start(), await Broker(store).start()
        for place in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
            await store.create(f"{place}/acl_changes_", value, sequential=True)
        await first.add(ORDERS, ALICE, READ)
        await first.add(ORD, ALICE, READ)
        await until(lambda: second.rules.keys() == {ORDERS, ORD}, "both notifications are read")
        await first.stop()
        await second.stop()

    run(Shared(), work)


def test_many_patterns_are_written_in_few_transactions(tmp_path: Path) -> None:
    class Counting(EmbeddedStore):
        commits = 0

        async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
            self.commits += 1
            return await super().commit(operations)

    async def work(store: MetadataStore) -> None:
        assert isinstance(store, Counting)
        broker = await Broker(store).start()
        store.commits = 0

        async def edit(present: Rules) -> Rules:
            return {ALICE: READ}

        patterns = [ResourcePattern(ResourceType.TOPIC, f"t{number}") for number in range(2000)]
        assert await broker.acls.change(dict.fromkeys(patterns, edit)) == {}
        assert store.commits == broker.told == 2000 / acl_store.BATCH_PATTERNS
        assert broker.rules == {pattern: {ALICE: READ} for pattern in patterns}
        await broker.stop()

    run(Counting(tmp_path), work)
