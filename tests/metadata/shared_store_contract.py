"""The contract of stores that several brokers share: sessions, what others see, and random commits against a model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from metadata.store_contract import StoreContract, Test, wait_for

from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    NotEmptyError,
    Operation,
    SessionState,
    SetData,
    Stat,
    StoreUnavailableError,
    WatchEvent,
    WatchEventType,
)

TwoStores = Callable[[MetadataStore, MetadataStore], Awaitable[None]]
NAMES = ("/a", "/a/x", "/a/y", "/b", "/b/x", "/c")


class SharedStoreContract(StoreContract):
    """The contract of stores with `is_shared`.

    A subclass makes the stores of one cluster, which it forgets between two tests, and says how a session expires.
    """

    def store(self) -> MetadataStore:
        """A store of the test's cluster, not started."""
        raise NotImplementedError

    def run(self, test: Test) -> None:
        async def opened() -> None:
            store = self.store()
            await store.start()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(opened())

    def run_with_two(self, test: TwoStores) -> None:
        async def opened() -> None:
            one, two = self.store(), self.store()
            await one.start()
            await two.start()
            try:
                await test(one, two)
            finally:
                await one.close()
                await two.close()

        asyncio.run(opened())

    async def expire(self, store: MetadataStore) -> None:
        """End the store's session at the server, as after its timeout."""
        raise NotImplementedError

    # --- sessions -----------------------------------------------------------------------------------------------------

    def test_ephemeral_nodes_go_with_their_session_and_others_hear_of_it(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            assert store.is_shared
            await other.create("/ids/1", b"me", ephemeral=True, make_parents=True)
            await other.create("/kept", b"x")
            assert (await store.get("/ids/1"))[1].ephemeral_owner == other.session_id != store.session_id
            seen: list[WatchEvent] = []
            await store.watch_children("/ids", seen.append)
            await store.watch_node("/ids/1", seen.append)
            await other.close()
            await wait_for(lambda: len(seen) >= 2)
            assert set(seen) == {
                WatchEvent(WatchEventType.CHILDREN, "/ids"), WatchEvent(WatchEventType.DELETED, "/ids/1"),
            }  # fmt: skip
            assert await store.children("/ids") == []
            assert (await store.get("/kept"))[0] == b"x"

        self.run_with_two(test)

    def test_an_ephemeral_node_keeps_its_owner_when_another_session_changes_it(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await other.create("/mine", b"1", ephemeral=True)
            stat = await store.set("/mine", b"2", 0)
            assert stat.ephemeral_owner == other.session_id
            await other.close()
            assert await self.gone(store, "/mine")

        self.run_with_two(test)

    async def gone(self, store: MetadataStore, path: str) -> bool:
        """Return when the node is gone."""
        while await store.exists(path) is not None:
            await asyncio.sleep(0.01)
        return True

    def test_an_expired_session_is_told_and_watches_live_on_in_the_next(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await store.create("/mine", ephemeral=True)
            await store.create("/parent")
            states: list[SessionState] = []
            seen: list[WatchEvent] = []
            store.listen_session(states.append)
            await store.watch_children("/parent", seen.append)
            await store.watch_node("/parent/late", seen.append)
            first = store.session_id
            await self.expire(store)
            await wait_for(lambda: SessionState.EXPIRED in states and states[-1] is SessionState.CONNECTED)
            assert store.session_id != first
            assert await other.exists("/mine") is None
            assert await store.create("/mine", ephemeral=True) == "/mine"
            assert (await other.get("/mine"))[1].ephemeral_owner == store.session_id
            await other.create("/parent/late")
            # A watch of the earlier session may tell that anything can have changed.
            await wait_for(lambda: {"/parent", "/parent/late"} <= {event.path for event in seen})
            assert WatchEvent(WatchEventType.CHILDREN, "/parent") in seen

        self.run_with_two(test)

    def test_a_broker_that_registers_again_gets_a_larger_epoch(self) -> None:
        """Delete and create in one commit, as after an expired session; create and set, as Kafka registers."""

        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await store.ensure_path("/ids")
            registration = [Create("/ids/1", b"", ephemeral=True), SetData("/ids/1", b"me", 0)]
            results = await other.commit(registration)
            first = await store.exists("/ids/1")
            assert first is not None
            assert results == ["/ids/1", first]
            assert (first.version, first.ephemeral_owner) == (1, other.session_id)
            await store.commit([Delete("/ids/1"), *registration])
            second = await other.exists("/ids/1")
            assert second is not None
            assert (second.version, second.ephemeral_owner) == (1, store.session_id)
            assert second.created_transaction > first.created_transaction
            changed = await store.set("/ids/1", b"new")
            assert (changed.version, changed.created_transaction) == (2, second.created_transaction)

        self.run_with_two(test)

    # --- two writers --------------------------------------------------------------------------------------------------

    def test_each_sees_what_the_other_has_written(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await store.create("/a", b"1")
            seen: list[WatchEvent] = []
            await other.watch_node("/a", seen.append)
            stat = await store.set("/a", b"2")
            await wait_for(lambda: bool(seen))
            assert await other.get("/a") == (b"2", stat)
            with pytest.raises(BadVersionError):
                await other.set("/a", b"3", 0)
            with pytest.raises(NodeExistsError):
                await other.create("/a")

        self.run_with_two(test)

    def test_of_writers_with_one_version_exactly_one_wins(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await store.create("/a")
            for version in range(10):
                attempts = [each.set("/a", name, version) for each in (store, other) for name in (b"x", b"y")]
                done = await asyncio.gather(*attempts, return_exceptions=True)
                assert sorted(type(each).__name__ for each in done) == ["BadVersionError"] * 3 + ["Stat"]

        self.run_with_two(test)

    def test_sequential_nodes_of_two_writers_have_distinct_numbers_in_the_order_of_their_commits(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await store.create("/q")

            async def write(by: MetadataStore) -> list[str]:
                return [await by.create("/q/n_", sequential=True) for _ in range(15)]

            one, two = await asyncio.gather(write(store), write(other))
            assert len(set(one) | set(two)) == 30
            assert (one, two) == (sorted(one), sorted(two))
            stats = await store.get_many(sorted([*one, *two]))
            created = [each[1].created_transaction for each in stats if each is not None]
            assert created == sorted(set(created))

        self.run_with_two(test)

    def test_a_parent_is_not_deleted_while_another_gives_it_a_child(self) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            for number in range(15):
                parent = f"/p{number}"
                await store.create(parent)
                done = await asyncio.gather(
                    store.delete(parent), other.create(f"{parent}/child"), return_exceptions=True
                )
                child, top = await store.get_many([f"{parent}/child", parent])
                assert (child is None) == (top is None), done
                assert (isinstance(done[0], NotEmptyError), done[0] is None) == (top is not None, top is None)

        self.run_with_two(test)

    def test_large_commits_are_whole_also_when_they_meet(self) -> None:
        """More operations than etcd compares in one transaction."""

        async def test(store: MetadataStore, other: MetadataStore) -> None:
            await store.create("/big")
            batches = [[Create(f"/big/{name}{i:03}", b"x" * 50) for i in range(300)] for name in "ab"]
            busy = True

            async def disturb() -> None:
                # A large commit begins again after each of these, and on a busy machine none would end.
                for _ in range(100):
                    if not busy:
                        break
                    await other.create("/d", make_parents=True)
                    await other.delete("/d")
                    await asyncio.sleep(0.005)

            disturbing = asyncio.create_task(disturb())
            await asyncio.gather(store.commit(batches[0]), other.commit(batches[1]))
            busy = False
            await disturbing
            names = await other.children("/big")
            assert len(names) == 600
            found = await other.get_many([f"/big/{name}" for name in names])
            created = {each[1].created_transaction for each in found if each is not None}
            assert len(created) == 2
            with pytest.raises(BadVersionError):
                await store.commit([*(SetData(f"/big/{name}", b"y", 0) for name in names), Check("/big", 5)])
            found = await store.get_many([f"/big/{name}" for name in names])
            assert {each[1].version for each in found if each is not None} == {0}
            await store.commit([*(Delete(f"/big/{name}", 0) for name in names), Delete("/big")])
            assert await other.exists("/big") is None

        self.run_with_two(test)

    # --- a model ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(4))
    def test_random_commits_do_what_they_do_in_memory(self, seed: int) -> None:
        async def test(store: MetadataStore, other: MetadataStore) -> None:
            choose = random.Random(seed)
            model = MemoryStore()
            await model.start()
            for step in range(60):
                operations = random_commit(choose)
                by = choose.choice((store, other))
                wanted, found = await outcome(model, operations), await outcome(by, operations)
                assert found == wanted, (step, operations)
                assert await tree(choose.choice((store, other))) == await tree(model), (step, operations)
            await model.close()

        self.run_with_two(test)


def random_commit(choose: random.Random) -> list[Operation]:
    """One to four operations on few nodes, so that they meet."""
    operations: list[Operation] = []
    for _ in range(choose.choice((1, 1, 2, 3, 4))):
        path = choose.choice(NAMES)
        version = choose.choice((ANY_VERSION, ANY_VERSION, 0, 1))
        operations.append(
            choose.choice(
                (
                    Create(path, b"%d" % choose.randrange(100)),
                    Create(path, b"new"),
                    Create(f"{path}-", b"", sequential=True),
                    SetData(path, b"%d" % choose.randrange(100), version),
                    Delete(path, version),
                    Check(path, max(version, 0)),
                )
            )
        )
    return operations


async def outcome(store: MetadataStore, operations: Sequence[Operation]) -> list[object]:
    """The results without transaction numbers and times, or the error with its path."""
    try:
        results = await store.commit(operations)
    except StoreUnavailableError:
        raise
    except MetadataStoreError as error:
        return [type(error).__name__, error.path]
    return [each.version if isinstance(each, Stat) else named(each) for each in results]


def named(path: str | None) -> str | None:
    """The path without a sequence number: those of a failed commit need not be given again."""
    return path[:-10] if path is not None and path[-10:].isdecimal() else path


async def tree(store: MetadataStore) -> dict[str, list[tuple[bytes, int]]]:
    """Values and versions by path, sequential nodes by their prefix."""
    found: dict[str, list[tuple[bytes, int]]] = {}
    for top in await store.children("/"):
        if top == "zookeeper":
            continue
        for path in await store.subtree(f"/{top}"):
            value, stat = await store.get(path)
            found.setdefault(named(path) or "", []).append((value, stat.version))
    return {path: sorted(each) for path, each in found.items()}
