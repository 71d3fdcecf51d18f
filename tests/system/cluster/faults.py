"""Faults of a cluster, each from its beginning to its end as a context."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random
from typing import NamedTuple

from system.cluster.network import CLIENTS, Network
from system.cluster.processes import CLEAN, STORE, WAIT_S, Cluster, Member, host_of, wait_until
from system.slow_files import SYNC, WRITE

TOPIC = "load"
"""The topic whose leader is hit."""
BEYOND = 2.0
"""Sessions that a fault lasts, so that the metadata store takes the broker for dead."""
SLOW_KBIT = 800
SLOW_MS = 60


class Fault(NamedTuple):
    """One kind of fault."""

    begin: Callable[[], AbstractContextManager[object]]
    """Hits the cluster; the end of the context repairs it."""
    sessions: float = 0.0
    """Session timeouts that it lasts at least."""
    stops_load: bool = False
    """Acknowledgements may have to wait for its end."""


class Faults:
    """The faults that a cluster can have, by name. `random` chooses the brokers."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self._random = random
        self.kinds: dict[str, Fault] = self._of_processes()
        if cluster.network is not None:
            self.kinds |= self._of_the_network(cluster.network)
        if all(isinstance(member, Member) and member.disks for member in cluster.members.values()):
            self.kinds |= self._of_disks()
        self.kinds["several faults at once"] = Fault(self._several, BEYOND, stops_load=True)

    # --- brokers that faults hit ----------------------------------------------------------------------------------

    def _any(self) -> int:
        return self._random.choice(sorted(self.cluster.members))

    def _controller(self) -> int:
        return self.cluster.controller()

    def _leader(self) -> int:
        return self.cluster.leader(TOPIC)

    # --- processes ------------------------------------------------------------------------------------------------

    def _of_processes(self) -> dict[str, Fault]:
        return {
            "a killed broker": Fault(lambda: self._killed(self._any())),
            "a killed controller": Fault(lambda: self._killed(self._controller())),
            "a killed leader": Fault(lambda: self._killed(self._leader())),
            "a killed leader with an empty disk": Fault(lambda: self._killed(self._leader(), wipe=True)),
            "a restarted broker": Fault(lambda: self._stopped(self._any())),
            "a restarted controller": Fault(lambda: self._stopped(self._controller())),
            "a leader that stands still beyond its session": Fault(lambda: self._still(self._leader()), BEYOND),
            "a controller that stands still beyond its session": Fault(lambda: self._still(self._controller()), BEYOND),
            "a broker that stands still for a moment": Fault(lambda: self._still(self._any()), 0.2, stops_load=True),
            "all brokers killed": Fault(self._all_killed, stops_load=True),
            "a store that stands still beyond all sessions": Fault(self._store_still, BEYOND, stops_load=True),
            "a killed store": Fault(self._store_killed, 0.5, stops_load=True),
        }

    @contextmanager
    def _killed(self, broker_id: int, wipe: bool = False) -> Iterator[None]:
        member = self.cluster[broker_id]
        member.kill()
        yield
        if wipe:
            member.wipe()
        member.start()

    @contextmanager
    def _stopped(self, broker_id: int) -> Iterator[None]:
        member = self.cluster[broker_id]
        code = member.stop(WAIT_S)
        assert code in CLEAN, f"broker {broker_id} ended with exit code {code}: {member.log_tail()}"
        yield
        member.start()

    @contextmanager
    def _still(self, broker_id: int) -> Iterator[None]:
        member = self.cluster[broker_id]
        member.pause()
        try:
            yield
        finally:
            member.resume()

    @contextmanager
    def _all_killed(self) -> Iterator[None]:
        for member in self.cluster.members.values():
            member.kill()
        yield
        with ThreadPoolExecutor(len(self.cluster.members)) as pool:
            list(pool.map(lambda member: member.start(), self.cluster.members.values()))

    @contextmanager
    def _store_still(self) -> Iterator[None]:
        self.cluster.store.pause()
        try:
            yield
        finally:
            self.cluster.store.resume()

    @contextmanager
    def _store_killed(self) -> Iterator[None]:
        self.cluster.store.kill()
        yield
        self.cluster.store.start()
        self.cluster.store.wait()

    # --- network --------------------------------------------------------------------------------------------------

    def _of_the_network(self, network: Network) -> dict[str, Fault]:
        def cut(
            who: Callable[[], int],
            from_whom: Callable[[int], list[str]],
            *,
            hears: bool = False,
            heard: bool = False,
            stops_load: bool = False,
        ) -> Fault:
            def begin() -> None:
                broker_id = who()
                self._cut(network, broker_id, from_whom(broker_id), hears, heard)

            return Fault(lambda: self._until_mended(network, begin), BEYOND, stops_load)

        def store(_: int) -> list[str]:
            return [STORE]

        def brokers(broker_id: int) -> list[str]:
            return [host_of(each) for each in self.cluster.members if each != broker_id]

        return {
            "a leader cut off from its followers": cut(self._leader, brokers, stops_load=True),
            "a leader that hears no follower": cut(self._leader, brokers, heard=True, stops_load=True),
            "a leader that no follower hears": cut(self._leader, brokers, hears=True, stops_load=True),
            "a leader cut off from one follower": cut(
                self._leader, lambda leader: [self._random.choice(brokers(leader))], stops_load=True
            ),
            "a leader cut off from the store": cut(self._leader, store),
            "a controller cut off from the store": cut(self._controller, store),
            "a broker that does not hear the store": cut(self._any, store, heard=True),
            "a broker that the store does not hear": cut(self._any, store, hears=True),
            "a controller cut off from the brokers": cut(self._controller, brokers, stops_load=True),
            "a broker alone": cut(self._any, lambda broker_id: [*brokers(broker_id), STORE, CLIENTS]),
            "a leader that reaches clients only": cut(self._leader, lambda leader: [*brokers(leader), STORE]),
            "a store that nobody reaches": Fault(
                lambda: self._until_mended(network, lambda: network.part([STORE], brokers(0))), BEYOND, stops_load=True
            ),
            "a leader with a slow link": Fault(
                lambda: self._until_mended(network, lambda: network.slow(host_of(self._leader()), SLOW_KBIT)), BEYOND
            ),
        }

    @staticmethod
    def _cut(
        network: Network, broker_id: int, hosts: Collection[str], hears: bool = False, heard: bool = False
    ) -> None:
        """Cut a broker off from hosts, except that it still `hears` them or is `heard` by them."""
        own = host_of(broker_id)
        for host in hosts:
            if not hears:
                network.cut(host, own)
            if not heard:
                network.cut(own, host)

    @contextmanager
    def _until_mended(self, network: Network, begin: Callable[[], None]) -> Iterator[None]:
        try:
            begin()
            yield
        finally:
            network.mend()

    # --- disks ----------------------------------------------------------------------------------------------------

    def _of_disks(self) -> dict[str, Fault]:
        return {
            "a leader with a slow disk": Fault(lambda: self._slow_disks([self._leader()]), BEYOND),
            "all disks slow": Fault(lambda: self._slow_disks(self.cluster.members), BEYOND, stops_load=True),
            "a leader with a full disk": Fault(self._full_disk),
            "a broker whose disks are all full": Fault(self._full_disks),
        }

    @contextmanager
    def _slow_disks(self, broker_ids: Collection[int]) -> Iterator[None]:
        slow = [self._member(broker_id) for broker_id in broker_ids]
        for member in slow:
            assert member.slow_files is not None
            member.slow_files.be_slow("/disk-", SLOW_MS, WRITE | SYNC)
        try:
            yield
        finally:
            for member in slow:
                assert member.slow_files is not None
                member.slow_files.be_fast()

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        """The disk of the leader's partition is full: its partitions move, and come back after a restart."""
        leader = self._leader()
        member = self._member(leader)
        disk = next(each for each in member.disks if (each.path / f"{TOPIC}-0").is_dir())
        disk.fill()
        try:
            wait_until(lambda: self.cluster.leader(TOPIC) != leader, "another broker leads", WAIT_S)
            yield
        finally:
            disk.empty()
        member.kill()
        member.start()

    @contextmanager
    def _full_disks(self) -> Iterator[None]:
        """Without any log directory a broker ends."""
        broker_id = self._any()
        member = self._member(broker_id)
        for disk in member.disks:
            disk.fill()
        try:
            assert member.process is not None
            try:
                code = member.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"broker {broker_id} lives on without a disk: {member.log_tail()}") from None
            assert code == 1, f"broker {broker_id} ended with exit code {code}: {member.log_tail()}"
            member.process = None
            yield
        finally:
            for disk in member.disks:
                disk.empty()
        member.start()

    def _member(self, broker_id: int) -> Member:
        member = self.cluster[broker_id]
        assert isinstance(member, Member)
        return member

    # --- several --------------------------------------------------------------------------------------------------

    @contextmanager
    def _several(self) -> Iterator[None]:
        """Two or more brokers have faults at the same time, and sometimes the store stands still."""
        brokers = sorted(self.cluster.members)
        self._random.shuffle(brokers)
        brokers = brokers[: self._random.randrange(2, len(brokers) + 1)]
        killed = brokers[: self._random.randrange(len(brokers))]
        # The faults end in reverse order: killed brokers start when the others have ended.
        with ExitStack() as ends:
            for broker_id in brokers:
                ends.enter_context(self._killed(broker_id) if broker_id in killed else self._one_of(broker_id))
            if self._random.random() < 0.3:
                ends.enter_context(self._store_still())
            yield

    def _one_of(self, broker_id: int) -> AbstractContextManager[object]:
        """A fault of one broker that it has beside others."""
        kinds = [lambda: self._still(broker_id)]
        network = self.cluster.network
        if network is not None:
            hosts = [*(host_of(each) for each in self.cluster.members if each != broker_id), STORE, CLIENTS]
            some = self._random.sample(hosts, self._random.randrange(1, len(hosts) + 1))
            heard = self._random.random() < 0.3
            kinds += 2 * [lambda: self._until_mended(network, lambda: self._cut(network, broker_id, some, heard=heard))]
        member = self.cluster[broker_id]
        if isinstance(member, Member) and member.slow_files is not None:
            kinds.append(lambda: self._slow_disks([broker_id]))
        return self._random.choice(kinds)()
