"""Several brokers inside the process of a test.

    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        ...  # clients connect to cluster.bootstrap_servers
        cluster.stop_broker(1)

Each broker is that of `kafkapy.testing.Broker`, on threads of this process. They share metadata in memory, elect a
controller and replicate over 127.0.0.1; records lie in temporary directories, so that a stopped broker continues with
its data. Topics have three replicas by default, two of which have to be in sync.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
from kafkapy.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.plugins import hookimpl
from kafkapy.testing.broker import Broker

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.store import MetadataStore

__all__ = ["Cluster"]

STORE: Final = "shared-memory"
MOST_REPLICAS: Final = 3
READY_S: Final = 60.0
PAUSE_S: Final = 0.01


class _SharedStore:
    """The plugin that registers the metadata store of one cluster."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree

    @hookimpl
    def register_metadata_stores(self) -> Mapping[str, Callable[[BrokerConfig], MetadataStore]]:
        """The store by its name."""
        return {STORE: lambda _config: MemoryStore(self._tree)}


class Cluster:
    """A cluster of brokers with the ids 1, 2, 3, ...

    Any thread may create and use it; the same thread calls `start` and `stop`. Overrides are broker keys of all
    brokers, with underscores for the dots. With `racks`, broker N is in the rack "rack-N".
    """

    def __init__(self, brokers: int = 3, *, racks: bool = False, **overrides: object) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs a broker, not {brokers}")
        copies = str(min(brokers, MOST_REPLICAS))
        enough = str(max(1, min(brokers, MOST_REPLICAS) - 1))
        self._keys: dict[str, object] = {
            "kafkapy.metadata.store": STORE,
            "kafkapy.storage.backend": "local",
            "default.replication.factor": copies,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough,
            "controlled.shutdown.retry.backoff.ms": "100",
            "replica.fetch.backoff.ms": "50",
        } | {name.replace("_", "."): value for name, value in overrides.items()}
        self._racks = racks
        self._count = brokers
        self._directory = Path()
        self._tree = MemoryTree()
        self._ports: dict[int, int] = {}
        self.brokers: dict[int, Broker] = {}
        """The running brokers by id."""

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Cluster:
        """Start all brokers on new ports.

        Returns when each broker knows the others. A second call does nothing.
        """
        if not self.brokers:
            self._directory = Path(tempfile.mkdtemp(prefix="kafkapy-cluster-"))
            self._tree = MemoryTree()
            self._ports = dict.fromkeys(range(1, self._count + 1), 0)
            try:
                with ThreadPoolExecutor(self._count) as pool:
                    list(pool.map(self._start, self._ports))
                self.wait_for_brokers()
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop all brokers, and discard topics and records. A second call does nothing."""
        # One after another and the controller last: leaders move, as when brokers stop for a restart.
        running = sorted(self.brokers.values(), key=lambda broker: broker.server.context.controller.is_active)
        self.brokers.clear()
        with ExitStack() as stops:
            for broker in reversed(running):
                stops.callback(broker.stop)
        if self._ports:
            self._ports = {}
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- brokers --------------------------------------------------------------------------------------------------

    def add_broker(self) -> int:
        """Start one more broker, and return its id."""
        broker_id = max(self._ports) + 1
        self._ports[broker_id] = 0
        self._start(broker_id)
        self.wait_for_brokers()
        return broker_id

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker as SIGTERM does: its leaders move first.

        KeyError when it does not run.
        """
        self.brokers.pop(broker_id).stop()

    def start_broker(self, broker_id: int, *, wipe: bool = False) -> None:
        """Start a stopped broker on its port and data; `wipe` removes the data before.

        IllegalStateError when it runs.
        """
        if broker_id in self.brokers:
            raise IllegalStateError(f"broker {broker_id} is running")
        if wipe:
            shutil.rmtree(self._data_of(broker_id), ignore_errors=True)
        self._start(broker_id)
        self.wait_for_brokers()

    def expire_session(self, broker_id: int) -> None:
        """End a broker's session, as a metadata store does after a silence."""
        store = self.brokers[broker_id].server.context.store
        self._tree.expire(store.session_id)

    @property
    def controller_id(self) -> int:
        """The controller's id, -1 while there is none."""
        with self.admin() as admin:
            return int(admin.describe_cluster()["controller_id"])

    def _start(self, broker_id: int) -> None:
        keys = self._keys | {
            "broker.id": broker_id,
            "log.dirs": self._data_of(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[broker_id]}",
        }
        if self._racks:
            keys["broker.rack"] = f"rack-{broker_id}"
        overrides: dict[str, Any] = {name.replace(".", "_"): value for name, value in keys.items()}
        broker = Broker(plugins=[_SharedStore(self._tree)], **overrides).start()
        self._ports[broker_id] = broker.port
        self.brokers[broker_id] = broker

    def _data_of(self, broker_id: int) -> Path:
        return self._directory / f"broker-{broker_id}"

    # --- for clients ----------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the running brokers, separated by commas. IllegalStateError when none runs."""
        if not self.brokers:
            raise IllegalStateError("the cluster is not running")
        return ",".join(self.brokers[broker_id].bootstrap_servers for broker_id in sorted(self.brokers))

    def admin(self) -> KafkaAdminClient:
        """A new admin client of the running brokers."""
        return KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; returns when all its replicas are in sync. KafkaError."""
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (configs or {}).items()
        }
        with self.admin() as admin:
            admin.create_topics(
                {
                    name: {
                        "num_partitions": partitions or -1,
                        "replication_factor": replication_factor or -1,
                        "configs": texts,
                    }
                }
            )
        self.wait_until_in_sync([name])

    def wait_for_brokers(self, timeout_s: float = READY_S) -> None:
        """Return when each running broker knows exactly the running brokers. KafkaTimeoutError."""
        wanted = set(self.brokers)

        def strange() -> list[str]:
            found = []
            for broker_id, broker in list(self.brokers.items()):
                with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                    known = {int(each["broker_id"]) for each in admin.describe_cluster()["brokers"]}
                if known != wanted:
                    found.append(f"broker {broker_id} knows the brokers {sorted(known)}")
            return found

        _wait(strange, timeout_s)

    def wait_until_in_sync(self, topics: Iterable[str] | None = None, timeout_s: float = READY_S) -> None:
        """Return when all partitions have a leader, and all replicas in sync.

        Each broker has to say so; by default of all topics. KafkaTimeoutError with the partitions that have not.
        """
        names = None if topics is None else list(topics)

        def behind() -> list[str]:
            found: list[str] = []
            for broker_id, broker in list(self.brokers.items()):
                with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                    told = admin.describe_topics(names)
                found += [f"broker {broker_id}: {problem}" for topic in told for problem in _behind(topic)]
            return found

        _wait(behind, timeout_s)


def _behind(topic: Mapping[str, Any]) -> list[str]:
    """The partitions of a topic without leader or with missing replicas."""
    if topic["error_code"]:
        return [f"topic {topic['name']} is unknown"]
    return [
        f"{topic['name']}-{each['partition_index']} has leader {each['leader_id']} and ISR {each['isr_nodes']} of "
        f"{each['replica_nodes']}"
        for each in topic["partitions"]
        if each["leader_id"] < 0 or set(each["isr_nodes"]) != set(each["replica_nodes"])
    ]


def _wait(problems: Callable[[], list[str]], timeout_s: float) -> None:
    """Return once there are no problems. KafkaTimeoutError with the last ones."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            found = problems()
        except KafkaError as error:
            found = [str(error)]
        if not found:
            return
        if time.monotonic() > end:
            raise KafkaTimeoutError(f"The cluster is not ready after {timeout_s:.0f} s: {'; '.join(found)}.")
        time.sleep(PAUSE_S)
