"""What a store does when its server, or the way to it, fails. Of ZooKeeper and etcd, each with a server of its own."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from metadata.broken_link import BrokenLink, until
from peers.apache_kafka import PeerMissingError
from peers.etcd import Etcd
from peers.zookeeper import ZooKeeper

from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.etcd_client import EtcdClient
from kafkapy.metadata.store import (
    BadVersionError,
    MetadataStore,
    SessionState,
    StoreUnavailableError,
    WatchEvent,
    WatchEventType,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore

LONG_MS = 120_000
"""A session that outlives every fault of a test, also on a busy machine."""
SHORT_MS = 5_000
"""A session that ends within a test."""


class Backend:
    """A server, and stores that reach it by any address."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.server: Any = Etcd(directory) if kind == "etcd" else ZooKeeper(directory, {"maxSessionTimeout": "300000"})

    @property
    def write_marker(self) -> bytes:
        """Bytes of a request that writes."""
        return b"request_put" if self.kind == "etcd" else b"/n"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def store(self, address: str, session_ms: int = LONG_MS, connection_ms: int = LONG_MS) -> MetadataStore:
        if self.kind == "etcd":
            return EtcdStore([address], session_timeout_ms=session_ms, connection_timeout_ms=connection_ms)
        return ZooKeeperStore(address, session_ms, connection_ms)


@pytest.fixture(scope="module", params=["etcd", "zookeeper"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    try:
        backend = Backend(request.param, tmp_path_factory.mktemp(request.param))
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with backend.server:
        yield backend


def run(backend: Backend, test: Callable[[MetadataStore, BrokenLink], Awaitable[None]], session_ms: int) -> None:
    """Run a test with a store behind a link."""

    async def opened() -> None:
        async with BrokenLink(backend.address) as link:
            direct = backend.store(backend.address)
            await direct.start()
            await remove(direct)
            await direct.close()
            store = backend.store(link.address, session_ms)
            await store.start()
            try:
                await test(store, link)
            finally:
                link.forward()
                await store.close()

    asyncio.run(opened())


async def remove(store: MetadataStore) -> None:
    """Remove the nodes of the test before."""
    for top in await store.children("/"):
        if top != "zookeeper":
            for path in await store.subtree(f"/{top}"):
                await store.delete(path)


async def patiently(work: Callable[[], Awaitable[Any]]) -> Any:
    """The result of something that may be repeated, once the store is reached."""
    while True:
        try:
            return await work()
        except StoreUnavailableError:
            await asyncio.sleep(0.02)


def test_a_write_whose_reply_is_lost_is_reported_and_has_happened_once(backend: Backend) -> None:
    async def test(store: MetadataStore, link: BrokenLink) -> None:
        await store.create("/n", b"0")
        link.lose_replies(backend.write_marker)
        with pytest.raises(StoreUnavailableError):
            await store.set("/n", b"1")
        assert link.lost == 1
        link.forward()
        value, stat = await patiently(lambda: store.get("/n"))
        assert (value, stat.version) == (b"1", 1)
        later = await patiently(lambda: store.set("/n", b"2"))
        assert later.version > stat.version

    run(backend, test, LONG_MS)


@pytest.mark.parametrize("seed", range(2))
def test_writers_who_ask_again_lose_and_double_nothing(backend: Backend, seed: int) -> None:
    """Two writers add names to one list while the link fails; each looks for its name after an unknown outcome."""

    async def test(store: MetadataStore, link: BrokenLink) -> None:
        choose = random.Random(seed)
        await store.create("/list", b"[]")
        running = True

        async def disturb() -> None:
            while running:
                await asyncio.sleep(choose.random() * 0.1)
                fault = choose.choice((link.cut, link.lose_replies, link.refuse))
                fault()
                await asyncio.sleep(choose.random() * 0.1)
                link.forward()

        async def add(name: str) -> None:
            while True:
                value, stat = await patiently(lambda: store.get("/list"))
                names = json.loads(value)
                if name in names:
                    return
                with suppress(BadVersionError, StoreUnavailableError):
                    await store.set("/list", json.dumps([*names, name]).encode(), stat.version)
                    return

        async def write(writer: str) -> None:
            for number in range(10):
                await add(f"{writer}{number}")

        disturbing = asyncio.create_task(disturb())
        await asyncio.gather(write("a"), write("b"))
        running = False
        await disturbing
        value, stat = await patiently(lambda: store.get("/list"))
        names = json.loads(value)
        assert sorted(names) == sorted(f"{writer}{number}" for writer in "ab" for number in range(10))
        assert stat.version == 20
        assert [name for name in names if name[0] == "a"] == [f"a{number}" for number in range(10)]

    run(backend, test, LONG_MS)


def test_a_watch_hears_of_changes_made_while_the_link_was_cut(backend: Backend) -> None:
    async def test(store: MetadataStore, link: BrokenLink) -> None:
        direct = backend.store(backend.address)
        await direct.start()
        await direct.create("/w")
        await direct.create("/w/old")
        seen: list[WatchEvent] = []
        await store.watch_node("/w/old", seen.append)
        await store.watch_children("/w", seen.append)
        link.refuse()
        await direct.set("/w/old", b"1")
        await direct.create("/w/new")
        link.forward()
        paths = lambda: {(event.type is WatchEventType.CHILDREN, event.path) for event in seen}  # noqa: E731
        await until(lambda: {(True, "/w"), (False, "/w/old")} <= paths())
        seen.clear()
        await direct.set("/w/old", b"2")
        await until(lambda: (False, "/w/old") in paths())
        await direct.close()

    run(backend, test, LONG_MS)


def test_a_session_outlives_a_restart_of_the_server(backend: Backend) -> None:
    async def test(store: MetadataStore, link: BrokenLink) -> None:
        await store.create("/kept", b"x")
        await store.create("/mine", b"me", ephemeral=True)
        seen: list[WatchEvent] = []
        await store.watch_node("/kept", seen.append)
        session, states = store.session_id, list[SessionState]()
        store.listen_session(states.append)
        backend.server.kill()
        # A server that begins may leave the first connections without an answer.
        link.refuse()
        backend.server.start()
        await asyncio.to_thread(backend.server.wait)
        link.forward()
        assert (await patiently(lambda: store.get("/kept")))[0] == b"x"
        await patiently(lambda: store.set("/kept", b"y"))
        await until(lambda: bool(seen))
        assert (await patiently(lambda: store.get("/mine")))[1].ephemeral_owner == session == store.session_id
        assert SessionState.EXPIRED not in states

    run(backend, test, LONG_MS)


def test_a_frozen_server_fails_requests_and_the_store_is_used_again_afterwards(backend: Backend) -> None:
    async def test(store: MetadataStore, link: BrokenLink) -> None:
        await store.create("/mine", ephemeral=True)
        states: list[SessionState] = []
        store.listen_session(states.append)
        link.swallow()
        with pytest.raises(StoreUnavailableError):
            await store.create("/late")
        await until(lambda: SessionState.SUSPENDED in states)
        with pytest.raises(StoreUnavailableError):
            await store.get("/mine")
        direct = backend.store(backend.address)
        await direct.start()
        while await direct.exists("/mine") is not None:  # until the server ends the session
            await asyncio.sleep(0.05)
        link.forward()
        await until(lambda: SessionState.EXPIRED in states and states[-1] is SessionState.CONNECTED)
        await patiently(lambda: store.create("/again", ephemeral=True))
        assert (await direct.get("/again"))[1].ephemeral_owner == store.session_id
        await direct.close()

    run(backend, test, SHORT_MS)


def test_a_write_of_a_session_that_has_ended_is_refused(backend: Backend) -> None:
    """Also when the store has not heard of the end yet: it comes back from a long silence and writes at once."""

    async def test(store: MetadataStore, link: BrokenLink) -> None:
        await store.create("/mine", ephemeral=True)
        await store.create("/n", b"0")
        link.swallow()
        writing = asyncio.ensure_future(store.set("/n", b"old"))
        direct = backend.store(backend.address)
        await direct.start()
        while await direct.exists("/mine") is not None:
            await asyncio.sleep(0.05)
        await direct.set("/n", b"new")
        link.forward()
        with pytest.raises(StoreUnavailableError):
            await writing
        states: list[SessionState] = []
        store.listen_session(states.append)
        await patiently(lambda: store.create("/alive"))
        assert (await direct.get("/n"))[0] == b"new"
        await direct.close()

    run(backend, test, SHORT_MS)


@pytest.mark.parametrize("how", ["refuse", "swallow"])
def test_a_store_whose_server_is_gone_can_be_closed(backend: Backend, how: str) -> None:
    async def test(store: MetadataStore, link: BrokenLink) -> None:
        await store.create("/parent")
        await store.watch_children("/parent", lambda event: None)
        getattr(link, how)()
        waiting = asyncio.ensure_future(store.get("/parent"))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises((StoreUnavailableError, asyncio.CancelledError)):
            await waiting

    run(backend, test, LONG_MS)


@pytest.mark.parametrize("how", ["refuse", "swallow"])
def test_a_start_without_a_server_ends_with_one_sentence(backend: Backend, how: str) -> None:
    async def start() -> str:
        async with BrokenLink(backend.address) as link:
            getattr(link, how)()
            store = backend.store(link.address, LONG_MS, 700)
            with pytest.raises(StoreUnavailableError) as caught:
                await store.start()
            return str(caught.value)

    said = asyncio.run(start())
    assert "cannot be reached within 0.7 seconds: " in said
    assert "\n" not in said


def test_watches_on_compacted_changes_are_told(tmp_path: Path) -> None:
    """etcd forgets the changes that a watch has missed: everything below it may have changed."""
    try:
        backend = Backend("etcd", tmp_path)
    except PeerMissingError as missing:
        pytest.skip(str(missing))

    async def test(store: MetadataStore, link: BrokenLink) -> None:
        direct = backend.store(backend.address)
        await direct.start()
        await direct.create("/w")
        await direct.create("/w/x")
        seen: list[WatchEvent] = []
        await store.watch_node("/w/x", seen.append)
        await store.watch_children("/w", seen.append)
        link.refuse()
        await direct.set("/w/x", b"1")
        await direct.create("/w/new")
        await direct.create("/other")
        client = EtcdClient([backend.address], 10.0)
        revision = await direct.last_transaction()
        await client.call("/v3/kv/compaction", {"revision": str(revision)}, timeout_s=10.0, repeatable=False)
        client.close()
        link.forward()
        wanted = {WatchEvent(WatchEventType.CHANGED, "/w/x"), WatchEvent(WatchEventType.CHILDREN, "/w")}
        await until(lambda: wanted <= set(seen))
        seen.clear()
        await direct.delete("/w/x")
        await until(lambda: WatchEvent(WatchEventType.DELETED, "/w/x") in seen)
        await direct.close()

    with backend.server:
        run(backend, test, LONG_MS)
