"""Real broker processes on a real ZooKeeper or etcd, which a test kills, stops, wipes and restarts.

Ports stay over restarts, so that clients find the brokers. All waits are bounded and end in a sentence.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from peers.apache_kafka import ApacheKafka
from peers.etcd import Etcd
from peers.store_server import HERE, Place
from peers.zookeeper import ZooKeeper
from system.cluster.network import Network
from system.disks import Disk
from system.slow_files import SlowFiles

from kafkapy.admin import KafkaAdminClient
from kafkapy.errors import KafkaError, TopicAlreadyExistsError
from kafkapy.testing.broker_process import BrokerFailedError, BrokerProcess

STORES = ("etcd", "zookeeper")
SESSION_MS = 3000
"""The session timeout where processes start quickly."""
LONGEST_SESSION_MS = 15_000
WAIT_S = 600.0
"""Far beyond what a busy machine takes."""
PAUSE_S = 0.05
PORT = 9092
"""Of brokers with an address of their own."""
STORE = "store"
"""The store's host in a network."""

KEYS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.network.threads": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "request.timeout.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": str(2 << 20),
    "log.segment.delete.delay.ms": "1000",
}
"""Small internal topics with three replicas, and times that a test can wait for."""
STARTED = b"msg=started"
"""In the line that a broker writes once it is registered and serves."""
CLEAN = (0, 128 + signal.SIGTERM)
"""Exit codes after SIGTERM: ours, and that of a JVM."""


def wait_until(condition: Callable[[], Any], what: str | Callable[[], str], seconds: float = WAIT_S) -> Any:
    """The first true value of the condition. KafkaError counts as not yet."""
    end = time.monotonic() + seconds
    problem = ""
    while True:
        try:
            value = condition()
            if value:
                return value
            problem = ""
        except KafkaError as error:
            problem = f" ({type(error).__name__}: {error})"
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}{problem}")
        time.sleep(PAUSE_S)


@cache
def session_ms() -> int:
    """A session timeout that brokers on this machine keep: where a process starts slowly, others may stand still."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import kafkapy.tools.server"], check=True)
    return round(min(max(SESSION_MS, 3000 * (time.monotonic() - begun)), LONGEST_SESSION_MS))


def host_of(broker_id: int) -> str:
    """The broker's host in a network."""
    return f"broker-{broker_id}"


def hosts(count: int) -> list[str]:
    """The hosts of a cluster of so many brokers."""
    return [STORE, *map(host_of, range(1, count + 1))]


class Member(BrokerProcess):
    """One broker of a cluster.

    `disks` are mounted for its log directories, which are slow when `slow_files` wishes so.
    """

    def __init__(
        self,
        broker_id: int,
        data_dir: Path,
        overrides: Mapping[str, str],
        place: Place = HERE,
        disks: Collection[Disk] = (),
        slow_files: SlowFiles | None = None,
    ) -> None:
        keys = {**overrides, "broker.id": str(broker_id)}
        if disks:
            keys["log.dirs"] = ",".join(str(disk.path) for disk in disks)
        server = [sys.executable, "-m", "kafkapy.tools.server"]
        super().__init__(
            data_dir,
            keys,
            host=place.address,
            port=0 if place is HERE else PORT,
            environment=slow_files.environment if slow_files is not None else None,
            command=[*place.command, *server] if place.command else None,
        )
        self.broker_id = broker_id
        self.paused = False
        self.disks = list(disks)
        self.slow_files = slow_files

    @property
    def log_dirs(self) -> list[Path]:
        """Where the broker's partitions are."""
        return [disk.path for disk in self.disks] or [self.data_dir / "logs"]

    @property
    def alive(self) -> bool:
        """Whether the process runs, and is not stopped by SIGSTOP."""
        return self.process is not None and self.process.poll() is None and not self.paused

    def start(self, timeout_s: float = WAIT_S) -> Member:
        """Start the broker, and wait until it serves: after a kill, when the session of its former life is over."""
        before = self.log_path.stat().st_size if self.log_path.exists() else 0
        super().start(timeout_s)

        def serves() -> bool:
            if self.process is None or self.process.poll() is not None:
                raise BrokerFailedError(f"broker {self.broker_id} ended: {self.log_tail()}")
            return STARTED in self.log_path.read_bytes()[before:]

        wait_until(serves, lambda: f"broker {self.broker_id} serves: {self.log_tail()}", timeout_s)
        return self

    def kill(self) -> None:
        """SIGKILL; it also ends a stopped process."""
        super().kill()
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP: connections stay, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        # On a busy machine its threads go on for a while.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        self.paused = True

    def resume(self) -> None:
        """Let it run on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def wipe(self) -> None:
        """Remove the data of a broker that does not run, as a new disk would."""
        assert self.process is None, "only a dead broker can be wiped"
        for disk in self.disks:
            disk.wipe()
        if not self.disks:
            shutil.rmtree(self.data_dir / "logs")

    def remove(self) -> None:
        """Kill a running process, and unmount the disks."""
        super().remove()
        for disk in self.disks:
            disk.unmount()


class JavaMember(ApacheKafka):
    """The same as a process of Apache Kafka, for clusters of both kinds."""

    def __init__(
        self, release: str, broker_id: int, data_dir: Path, overrides: Mapping[str, str], zookeeper: str
    ) -> None:
        known = {key: value for key, value in overrides.items() if not key.startswith("kafkapy.")}
        super().__init__(release, data_dir, {**known, "broker.id": str(broker_id)}, zookeeper=zookeeper)
        self.broker_id = broker_id
        self.paused = False
        self.log_dirs = [self.data_dir / "logs"]

    @property
    def alive(self) -> bool:
        """Whether the process runs, and is not stopped by SIGSTOP."""
        return self.process is not None and self.process.poll() is None and not self.paused

    def kill(self) -> None:
        """SIGKILL; it also ends a stopped process."""
        super().kill()
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Let it run on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def wipe(self) -> None:
        """Remove the data of a broker that does not run."""
        assert self.process is None, "only a dead broker can be wiped"
        shutil.rmtree(self.data_dir / "logs")

    def log_tail(self, size: int = 4000) -> str:
        """The last `size` bytes of the process's output."""
        return self.log_path.read_bytes()[-size:].decode(errors="replace") if self.log_path.exists() else ""


class Cluster:
    """Owns the metadata server and the brokers below one directory.

    The brokers in `java` are of that release of Apache Kafka, all others ours. In a `network`, which has the `hosts` of
    the cluster, each broker and the store has a host of its own. With `disk_size` each of our brokers has two small
    disks (DiskRefusedError), which can be slow.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        store: str = "zookeeper",
        overrides: Mapping[str, str] | None = None,
        racks: bool = False,
        java: Collection[int] = (),
        release: str = "3.9",
        prepare: Callable[[Member | JavaMember], None] | None = None,
        network: Network | None = None,
        disk_size: str | None = None,
    ) -> None:
        """`prepare` may change a new broker's `overrides`."""
        self._java = java
        self.release = release
        self.directory = directory
        self.network = network
        place = HERE if network is None else network.place(STORE)
        self.store: ZooKeeper | Etcd = (
            ZooKeeper(directory / "zookeeper", place=place)
            if store == "zookeeper"
            else Etcd(directory / "etcd", place=place)
        )
        self._disk_size = disk_size
        self.session_ms = session_ms()
        self._overrides = KEYS | dict(overrides or {})
        self._racks = racks
        self._count = count
        self._prepare = prepare
        self.members: dict[int, Member | JavaMember] = {}

    def __enter__(self) -> Cluster:
        self.store.__enter__()
        try:
            for broker_id in range(1, self._count + 1):
                self._new(broker_id)
            self.start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything."""
        for member in self.members.values():
            member.remove()
        self.store.__exit__(None, None, None)

    def _new(self, broker_id: int) -> Member | JavaMember:
        if isinstance(self.store, ZooKeeper):
            where = {"zookeeper.connect": self.store.connect}
            session = {"zookeeper.session.timeout.ms": str(self.session_ms)}
        else:
            where = {"kafkapy.etcd.endpoints": self.store.endpoint}
            session = {"kafkapy.etcd.session.timeout.ms": str(self.session_ms)}
        rack = {"broker.rack": f"rack-{broker_id % 3}"} if self._racks else {}
        keys = session | self._overrides | where | rack
        home = self.directory / f"broker-{broker_id}"
        member: Member | JavaMember
        if broker_id in self._java:
            member = JavaMember(self.release, broker_id, home, keys, where["zookeeper.connect"])
        else:
            place = HERE if self.network is None else self.network.place(host_of(broker_id))
            disks: list[Disk] = []
            slow_files = None
            if self._disk_size is not None:
                slow_files = SlowFiles(home, home)
                disks = [Disk(home / f"disk-{number}", None, self._disk_size) for number in (1, 2)]
            member = Member(broker_id, home, keys, place, disks, slow_files)
        if self._prepare is not None:
            self._prepare(member)
        self.members[broker_id] = member
        return member

    # --- members --------------------------------------------------------------------------------------------------

    def __getitem__(self, broker_id: int) -> Member | JavaMember:
        return self.members[broker_id]

    @property
    def live(self) -> list[Member | JavaMember]:
        return [member for member in self.members.values() if member.alive]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, dead ones too: their ports stay."""
        return ",".join(member.bootstrap for member in self.members.values() if member.port)

    def start_all(self) -> None:
        """Start all brokers that do not run, at the same time."""
        waiting = [member for member in self.members.values() if member.process is None]
        with ThreadPoolExecutor(max(1, len(waiting))) as pool:
            list(pool.map(lambda member: member.start(), waiting))
        self.wait_for_brokers()

    def stop_all(self) -> None:
        """Stop all brokers in order, one after another; each exit code has to be 0."""
        for member in self.members.values():
            if member.process is not None:
                assert member.stop(WAIT_S) in CLEAN, member.log_tail()

    def add(self) -> Member | JavaMember:
        """One more broker, started."""
        member = self._new(max(self.members) + 1)
        member.start()
        self.wait_for_brokers()
        return member

    # --- the cluster as clients see it ----------------------------------------------------------------------------

    def admin(self) -> KafkaAdminClient:
        """An admin client of the live brokers."""
        return KafkaAdminClient(
            bootstrap_servers=",".join(member.bootstrap for member in self.live),
            request_timeout_ms=10_000,
            default_api_timeout_ms=30_000,
        )

    def create_topic(self, name: str, partitions: int = 3, replicas: int = 3, **configs: str) -> None:
        """A topic whose partitions have leaders and all replicas in sync."""
        keys = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = {name: {"num_partitions": partitions, "replication_factor": replicas, "configs": keys}}
        # On a busy machine the answer may come too late, and the client asks again.
        with self.admin() as admin, suppress(TopicAlreadyExistsError):
            admin.create_topics(wanted)
        self.wait_until_in_sync([name])

    def describe(
        self, topics: Iterable[str] | None = None, broker: int | None = None
    ) -> dict[str, list[dict[str, Any]]]:
        """The partitions of topics, by default all, as one broker sees them."""
        seen_by = self.live if broker is None else [self.members[broker]]
        with KafkaAdminClient(
            bootstrap_servers=",".join(member.bootstrap for member in seen_by),
            request_timeout_ms=5000,
            default_api_timeout_ms=10_000,
        ) as admin:
            found = admin.describe_topics(None if topics is None else list(topics))
        return {
            topic["name"]: sorted(topic["partitions"], key=lambda each: int(each["partition_index"])) for topic in found
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader's id, once there is one that lives."""

        def found() -> int:
            leader = int(self.describe([topic])[topic][partition]["leader_id"])
            return leader if leader >= 0 and self.members[leader].alive else 0

        return int(wait_until(found, f"{topic}-{partition} has a live leader"))

    def controller(self) -> int:
        """The controller's id, once there is one that lives."""

        def found() -> int:
            with self.admin() as admin:
                named = int(admin.describe_cluster()["controller_id"])
            return named if named in self.members and self.members[named].alive else 0

        return int(wait_until(found, "the cluster has a live controller"))

    def wait_for_brokers(self) -> None:
        """Return when every live broker knows all live brokers."""
        wanted = sorted(member.broker_id for member in self.live)

        def known() -> bool:
            for member in self.live:
                with KafkaAdminClient(bootstrap_servers=member.bootstrap, default_api_timeout_ms=10_000) as admin:
                    found = sorted(each["broker_id"] for each in admin.describe_cluster()["brokers"])
                    if found != wanted:
                        return False
            return True

        wait_until(known, f"each broker knows the brokers {wanted}")

    def wait_until_in_sync(self, topics: Iterable[str] | None = None, every_broker: bool = True) -> None:
        """Return when all partitions have a leader and all replicas in sync, as all live brokers tell."""
        names = None if topics is None else list(topics)
        seen: dict[str, Any] = {}

        def problems() -> list[str]:
            told = []
            for member in self.live if every_broker else self.live[:1]:
                found = self.describe(names, member.broker_id)
                if names is not None and set(found) != set(names):
                    told.append(f"broker {member.broker_id} shows topics {sorted(found)}")
                # A broker that has not heard of a topic yet would refuse its first records, and take later ones.
                told += [
                    f"broker {member.broker_id} shows no partitions of {topic}" for topic in found if not found[topic]
                ]
                told += [
                    f"broker {member.broker_id} shows {topic}-{each['partition_index']} with leader "
                    f"{each['leader_id']}, ISR {each['isr_nodes']} of {each['replica_nodes']}"
                    for topic, partitions in found.items()
                    for each in partitions
                    if each["leader_id"] < 0 or set(each["isr_nodes"]) != set(each["replica_nodes"])
                ]
            seen["problems"] = told
            return told

        wait_until(lambda: not problems(), lambda: f"all replicas are in sync: {seen.get('problems')}")

    # --- files ----------------------------------------------------------------------------------------------------

    def log_bytes(self, topic: str, partition: int) -> dict[int, bytes]:
        """The bytes of the partition's segments in order, on each broker that has it."""
        found = {}
        for broker_id, member in self.members.items():
            for log_dir in member.log_dirs:
                directory = log_dir / f"{topic}-{partition}"
                if directory.is_dir():
                    found[broker_id] = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return found
