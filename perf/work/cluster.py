"""W10: three brokers on one ZooKeeper: replicated produce, catch-up, failover, rolling restart, many partitions.

Unpinned; one cluster at a time is up, so that brokers of another kind take nothing from it. The limit takes part in
the first three cells (work/replicated.py).
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
import peers
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType
from peers import KAFKAPY, LIMIT, Peer
from peers.zookeeper import ZooKeeper

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.errors import KafkaError
from work import replicated
from work.replicated import PARTITIONS
from work.session import WARM_UP_CPU_S, WARM_UP_LIMIT_S, Metrics, Session, rates

BROKERS = (1, 2, 3)
SESSION_MS = 6000
WITH_ZOOKEEPER = ("kafkapy", "apache-3.9")
"""The peers that this work compares: Kafka 4 has no ZooKeeper."""
KEYS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}
WAIT_S = 300.0
PAUSE_S = 0.005


class Brokers:
    """Three running brokers of one kind."""

    def __init__(self, members: dict[int, Any], zookeeper: str) -> None:
        self.members = members
        self.zookeeper = zookeeper

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members.values())

    @property
    def pids(self) -> list[int]:
        return [pid for member in self.members.values() if member.process for pid in measure.process_tree(member.pid)]

    def cpu(self) -> float:
        """CPU seconds of all brokers that run."""
        return sum(measure.cpu_seconds(member.pid) for member in self.members.values() if member.process)

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap, default_api_timeout_ms=120_000)

    def admin_without(self, dead: int) -> KafkaAdminClient:
        """A client of the other brokers, which asks again at once."""
        live = ",".join(f"127.0.0.1:{member.port}" for broker, member in self.members.items() if broker != dead)
        return KafkaAdminClient(bootstrap_servers=live, retry_backoff_ms=5, retry_backoff_max_ms=20)

    def create(self, admin: KafkaAdminClient, topic: str, partitions: int, leader: int | None = None) -> None:
        """A topic with three replicas, all in sync; with `leader`, one broker leads all partitions."""
        if leader is None:
            wanted: dict[str, Any] = {"num_partitions": partitions, "replication_factor": 3}
        else:
            others = [broker for broker in BROKERS if broker != leader]
            wanted = {"assignments": {number: [leader, *others] for number in range(partitions)}}
        admin.create_topics({topic: wanted})
        self.in_sync(admin, [topic])

    def in_sync(self, admin: KafkaAdminClient, topics: list[str]) -> None:
        """Return when all replicas are in sync. RuntimeError after WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                found = [each for topic in admin.describe_topics(topics) for each in topic["partitions"]]
                if found and all(each["leader_id"] >= 0 and len(each["isr_nodes"]) == 3 for each in found):
                    return
            except KafkaError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all replicas of {topics[:3]} are in sync after {WAIT_S:.0f} s")
            time.sleep(PAUSE_S)


@contextmanager
def running(session: Session, peer: Peer) -> Iterator[Brokers]:
    """Three brokers on a new ZooKeeper."""
    with session.folder(f"w10-{peer.name}") as folder, ZooKeeper(folder / "zookeeper") as zookeeper:
        members = {}
        try:
            for broker in BROKERS:
                keys = KEYS | {"broker.id": str(broker), "zookeeper.connect": zookeeper.connect}
                members[broker] = member = _made(peer, folder / f"broker-{broker}", keys, zookeeper.connect)
                member.start()
            yield Brokers(members, zookeeper.connect)
        finally:
            for member in members.values():
                member.kill()
                member.remove()


def _made(peer: Peer, directory: Path, keys: dict[str, str], zookeeper: str) -> Any:
    directory.mkdir(parents=True, exist_ok=True)
    broker = peer.make(directory, peers.SOON_DELETED | keys)
    if peer.is_apache:
        broker.zookeeper = zookeeper
    return broker


class Registration:
    """Sees when ZooKeeper drops the session of a broker: from then on a cluster can act, and not before.

    A session ends at a tick of the server, up to half of its timeout late, so the nominal timeout says too little.
    """

    def __init__(self, zookeeper: str, broker: int) -> None:
        self._client = KazooClient(hosts=zookeeper)
        self._client.start()
        self._gone = threading.Event()
        self._at = 0.0
        if self._client.exists(f"/brokers/ids/{broker}", watch=self._changed) is None:
            raise RuntimeError(f"broker {broker} is not registered")

    def _changed(self, event: Any) -> None:
        self._at = time.monotonic()
        if event.type == EventType.DELETED:
            self._gone.set()

    def ended(self) -> float:
        """When the registration went; waits for that."""
        if not self._gone.wait(WAIT_S):
            raise RuntimeError("ZooKeeper has not dropped the session of a killed broker")
        return self._at

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class Acknowledgements:
    """Sends a record every few ms with acks=all, in a thread, and remembers when each was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.times: list[float] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            delivery_timeout_ms=120_000,
            request_timeout_ms=10_000,
            retry_backoff_ms=5,
            retry_backoff_max_ms=20,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            future = self._producer.send(self._topic, b"%d" % number, partition=0)
            future.add_callback(lambda _: self.times.append(time.monotonic()))
            time.sleep(PAUSE_S)

    def after(self, moment: float) -> float:
        """The time of the first acknowledgement after a moment."""
        deadline = moment + WAIT_S
        while not self.times or self.times[-1] <= moment:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing was acknowledged for {WAIT_S:.0f} s")
            time.sleep(PAUSE_S)
        return next(each for each in self.times if each > moment)

    def longest_gap(self, begin: float) -> float:
        """The longest time between two acknowledgements since a moment, in seconds."""
        times = [begin, *(each for each in self.times if each > begin)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close(timeout=30)


# --- the cells ----------------------------------------------------------------------------------------------------


def _produce(session: Session, brokers: Brokers, folder: Path, size: int) -> Metrics:
    """Produce with acks=all to partitions that broker 1 leads; CPU of all three brokers."""
    with brokers.admin() as admin:
        topic = f"replicated-{size}-{next(_numbers)}"
        brokers.create(admin, topic, PARTITIONS, leader=1)
        answer = replicated.produce(session, folder, topic, brokers.members[1].port, brokers.pids, size)
        brokers.in_sync(admin, [topic])
        admin.delete_topics([topic])
    return rates(answer)


def _half_rate(session: Session, brokers: Brokers, folder: Path, rate: float) -> Metrics:
    """The latency of acks=all at a fixed rate, one record of 1 KB per request."""
    with brokers.admin() as admin:
        topic = f"paced-{next(_numbers)}"
        brokers.create(admin, topic, 1, leader=1)
        metrics = replicated.paced(session, folder, topic, brokers.members[1].port, brokers.pids, rate)
        admin.delete_topics([topic])
    return metrics


def _catch_up(session: Session, brokers: Brokers, folder: Path) -> Metrics:
    """A follower with an empty disk copies all partitions."""
    with brokers.admin() as admin:
        topic = f"copied-{next(_numbers)}"
        brokers.create(admin, topic, PARTITIONS, leader=1)
        size = replicated.fill(session, folder, topic, brokers.members[1].port, brokers.pids)
        brokers.in_sync(admin, [topic])
        follower = brokers.members[3]
        follower.stop()
        _remove_logs(follower, topic)
        before = brokers.cpu()
        follower.start()
        started, start_cpu = time.monotonic(), measure.cpu_seconds(follower.pid)
        brokers.in_sync(admin, [topic])
        took = time.monotonic() - started
        cpu = brokers.cpu() - before - start_cpu
        admin.delete_topics([topic])
    return replicated.copied(size, took, cpu)


def _remove_logs(member: Any, topic: str) -> None:
    for directory in (member.data_dir / "logs").glob(f"{topic}-*"):
        shutil.rmtree(directory)


def _failover(_session: Session, brokers: Brokers) -> Metrics:
    """From the end of a killed leader's session to the next acknowledgement."""
    with brokers.admin() as admin:
        topic = f"killed-{next(_numbers)}"
        brokers.create(admin, topic, 1, leader=2)
        load = Acknowledgements(brokers.bootstrap, topic)
        registration = Registration(brokers.zookeeper, 2)
        try:
            load.after(time.monotonic())
            killed = time.monotonic()
            brokers.members[2].kill()
            ended = registration.ended()
            again = load.after(ended)
        finally:
            load.close()
            registration.close()
        brokers.members[2].start()
        brokers.in_sync(admin, [topic])
        admin.delete_topics([topic])
    return {"seconds": again - ended, "gap_s": again - killed}


def _rolling_restart(_session: Session, brokers: Brokers) -> Metrics:
    """The longest time without an acknowledgement while all brokers restart in turn."""
    with brokers.admin() as admin:
        topic = f"rolled-{next(_numbers)}"
        brokers.create(admin, topic, 1)
        load = Acknowledgements(brokers.bootstrap, topic)
        try:
            begin = load.after(time.monotonic())
            for member in brokers.members.values():
                member.stop()
                member.start()
                brokers.in_sync(admin, [topic])
            load.after(time.monotonic())
        finally:
            load.close()
        admin.delete_topics([topic])
    return {"gap_s": load.longest_gap(begin), "seconds": time.monotonic() - begin}


def _many(session: Session, brokers: Brokers) -> Metrics:
    """2,000 partitions on each broker: memory, restart of a broker, failover of the controller."""
    topics, each = int(session.seconds(20, 2)), 100
    with brokers.admin() as admin:
        names = [f"many-{number}" for number in range(topics)]
        begin = time.monotonic()
        for name in names:
            admin.create_topics({name: {"num_partitions": each, "replication_factor": 3}})
        brokers.in_sync(admin, names)
        created = time.monotonic() - begin
        rss = max(measure.rss_bytes(member.pid) for member in brokers.members.values()) / 1e6
        controller = int(admin.describe_cluster()["controller_id"])
        other = next(broker for broker in BROKERS if broker != controller)
        begin = time.monotonic()
        brokers.members[other].stop()
        brokers.members[other].start()
        brokers.in_sync(admin, names)
        restart = time.monotonic() - begin
        registration = Registration(brokers.zookeeper, controller)
        try:
            brokers.members[controller].kill()
            with brokers.admin_without(controller) as live:
                ended = registration.ended()
                _until_created(live)
                failover = time.monotonic() - ended
        finally:
            registration.close()
        brokers.members[controller].start()
        brokers.in_sync(admin, names)
    return {"create_s": created, "rss_mb": rss, "restart_s": restart, "failover_s": failover}


def _until_created(admin: KafkaAdminClient) -> None:
    """Return when the new controller has made a topic with leaders."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            admin.create_topics({f"after-{next(_numbers)}": {"num_partitions": 1, "replication_factor": 2}})
            return
        except KafkaError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


_numbers = itertools.count()


def three_brokers(session: Session) -> None:
    """One kind of cluster after the other, in each round; Kafka's maximum gives the rate of the paced cell."""
    compared = [peer for peer in session.peers if peer.name in WITH_ZOOKEEPER]
    if session.smoke:
        session.say("W10's clusters are no part of the smoke run: they need a ZooKeeper, and minutes. The limit is.")
        compared = []
    paced_at = 0.0
    for _ in range(session.rounds):
        for peer in sorted(compared, key=lambda peer: peer is KAFKAPY):
            try:
                with running(session, peer) as brokers, session.folder("frames") as folder:
                    _warm_up(session, peer, brokers, folder)
                    paced_at = paced_at or _maximum(session, brokers, folder) / 2
                    _cells(session, peer, brokers, folder, paced_at)
            except Exception as error:
                session.fail(peer.name, "cluster", error)
        if LIMIT in session.peers:
            _measure(session, LIMIT, replicated.limit_cells(session, paced_at))


def _warm_up(session: Session, peer: Peer, brokers: Brokers, folder: Path) -> None:
    """Load the brokers until a just-in-time compiler has compiled what the cells need, as in the other works."""
    begin, cpu = time.monotonic(), brokers.cpu()
    wanted = WARM_UP_CPU_S * len(BROKERS) if peer.is_apache else 0.0
    _produce(session, brokers, folder, replicated.BATCH)
    while brokers.cpu() - cpu < wanted and time.monotonic() - begin < WARM_UP_LIMIT_S:
        _produce(session, brokers, folder, replicated.BATCH)


def _maximum(session: Session, brokers: Brokers, folder: Path) -> float:
    return _half_rate(session, brokers, folder, 0)["requests_per_s"]


def _cells(session: Session, peer: Peer, brokers: Brokers, folder: Path, rate: float) -> None:
    cells: dict[str, Callable[[], Metrics]] = {
        replicated.PRODUCE: lambda: _produce(session, brokers, folder, replicated.BATCH),
        replicated.PACED: lambda: _half_rate(session, brokers, folder, rate),
        replicated.CATCH_UP: lambda: _catch_up(session, brokers, folder),
        "SIGKILL of a leader": lambda: _failover(session, brokers),
        "rolling restart": lambda: _rolling_restart(session, brokers),
        "3 x 2,000 partitions": lambda: _many(session, brokers),
    }
    _measure(session, peer, cells)


def _measure(session: Session, peer: Peer, cells: dict[str, Callable[[], Metrics]]) -> None:
    for name, measured in cells.items():
        begin = time.monotonic()
        try:
            session.add(peer, name, measured(), "unpinned")
        except Exception as error:
            session.fail(peer.name, name, error)
        session.say(f"{session.work}  {name}, {peer.name}: {time.monotonic() - begin:.1f} s")
