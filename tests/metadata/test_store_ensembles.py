"""Stores on three servers: one of them dies, freezes, or is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from metadata.broken_link import until
from peers.apache_kafka import PeerMissingError, free_port
from peers.etcd import Etcd
from peers.zookeeper import ZooKeeper

from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.store import MetadataStore, SessionState, StoreUnavailableError, WatchEvent
from kafkapy.metadata.zookeeper import ZooKeeperStore

SESSION_MS = 60_000
"""A session that outlives the loss of a server, on a busy machine too."""


class Ensemble:
    """Three servers of one kind."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        ports = [(free_port(), free_port()) for _ in range(3)]
        if kind == "etcd":
            peers = {f"m{n}": f"http://127.0.0.1:{ports[n][0]}" for n in range(3)}
            timing = ["--heartbeat-interval", "500", "--election-timeout", "5000"]
            self.servers: list[Any] = [
                Etcd(directory / f"{n}", timing, name=f"m{n}", peer_port=ports[n][0], cluster=peers) for n in range(3)
            ]
        else:
            members = {n + 1: f"127.0.0.1:{ports[n][0]}:{ports[n][1]}" for n in range(3)}
            self.servers = [
                ZooKeeper(directory / f"{n}", {"maxSessionTimeout": "300000"}, number=n + 1, ensemble=members)
                for n in range(3)
            ]

    def __enter__(self) -> Ensemble:
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait()
        return self

    def __exit__(self, *ignored: object) -> None:
        for server in self.servers:
            server.kill()

    def store(self) -> MetadataStore:
        addresses = [f"127.0.0.1:{server.port}" for server in self.servers]
        if self.kind == "etcd":
            return EtcdStore(addresses, session_timeout_ms=SESSION_MS, connection_timeout_ms=SESSION_MS)
        return ZooKeeperStore(",".join(addresses), SESSION_MS, SESSION_MS)

    def used_by(self, store: MetadataStore) -> Any:
        """The server that the store talks to."""
        if isinstance(store, EtcdStore):
            return self.servers[store._client._current]
        assert isinstance(store, ZooKeeperStore)
        sock = store._client._connection._socket
        return next(server for server in self.servers if server.port == sock.getpeername()[1])


@pytest.fixture(params=["etcd", "zookeeper"])
def ensemble(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ensemble]:
    try:
        made = Ensemble(request.param, tmp_path)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_session_and_the_watches_outlive_the_server_that_they_used(ensemble: Ensemble, how: str) -> None:
    async def test() -> None:
        store, other = ensemble.store(), ensemble.store()
        await store.start()
        states: list[SessionState] = []
        seen: list[WatchEvent] = []
        store.listen_session(states.append)
        await store.create("/mine", b"me", ephemeral=True)
        await store.create("/w")
        await store.watch_children("/w", seen.append)
        session = store.session_id
        lost = ensemble.used_by(store)
        getattr(lost, how)()
        for number in range(5):
            while True:
                try:
                    await store.create(f"/w/{number}")
                    break
                except StoreUnavailableError:
                    if await exists(store, f"/w/{number}"):
                        break  # the answer alone was lost
        await until(lambda: bool(seen))
        assert ensemble.used_by(store) is not lost
        if how == "pause":
            lost.resume()
        await other.start()
        _, stat = await other.get("/mine")
        assert stat.ephemeral_owner == session == store.session_id
        assert SessionState.EXPIRED not in states
        assert len(await other.children("/w")) == 5
        seen.clear()
        await other.create("/w/more")
        await until(lambda: bool(seen))
        await other.close()
        await store.close()

    asyncio.run(test())


async def exists(store: MetadataStore, path: str) -> bool:
    while True:
        try:
            return await store.exists(path) is not None
        except StoreUnavailableError:
            await asyncio.sleep(0.05)


def test_without_a_majority_nothing_is_written(ensemble: Ensemble) -> None:
    async def test() -> None:
        store = ensemble.store()
        await store.start()
        await store.create("/n", b"0")
        first, second = ensemble.servers[:2]
        first.pause()
        second.pause()
        writing = asyncio.ensure_future(store.set("/n", b"1", 0))
        done, _ = await asyncio.wait([writing], timeout=4)
        assert not done or isinstance(writing.exception(), StoreUnavailableError)
        first.resume()
        second.resume()
        result = (await asyncio.gather(writing, return_exceptions=True))[0]
        while True:
            try:
                value, stat = await store.get("/n")
                break
            except StoreUnavailableError:
                await asyncio.sleep(0.1)
        assert (value, stat.version) in ((b"0", 0), (b"1", 1))
        assert isinstance(result, StoreUnavailableError) or value == b"1"
        await store.close()

    asyncio.run(test())
