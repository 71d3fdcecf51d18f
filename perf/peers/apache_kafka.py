"""Apache Kafka as one node, with KRaft or a ZooKeeper, its jars resolved from Maven Central into a cache, and its
command-line tools.

Only for comparison and interoperability checks. Raises PeerMissingError where Java, Maven or Maven Central can't be
had.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peers.zookeeper import ZooKeeper

RELEASES = {
    "2.1": "2.1.1", "2.8": "2.8.2", "3.3": "3.3.2", "3.6": "3.6.2", "3.9": "3.9.1", "4.1": "4.1.1", "4.x": "4.4.0"
}  # fmt: skip
"""Those that tests know by these names; others go by their own."""
TOOLS = {"4.4.0": "4.3.1"}
"""Releases whose broker is on Maven Central as kafka_2.13, but whose tools and Streams are not, and the release whose
are used with them."""
VERSIONS = {name: RELEASES[name] for name in os.environ.get("KAFKAPY_PEER_VERSIONS", "3.9,4.x").split(",")}
"""The releases that are tested with in this run."""
WITH_ZOOKEEPER = ("2.", "3.0", "3.1", "3.2")
"""Releases without a KRaft for production."""
WITHOUT_QUEUES = ("2.", "3.", "4.0")
QUEUES = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
CACHE = Path(os.environ.get("KAFKAPY_PEER_CACHE", Path(__file__).parents[2] / ".cache" / "peers"))

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kafkapy.peers</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging><dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_OF_THE_BROKER = ("kafka.Kafka", "kafka.tools.StorageTool")
_MOVED = {"kafka.tools.DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments"}
"""Tools whose names the releases in TOOLS changed."""
_LOGGER = "org.slf4j:slf4j-simple:1.7.36"
_EXCLUDED = "-DexcludeArtifactIds=slf4j-log4j12,slf4j-reload4j"
"""Loggers that older releases bring; with those nothing would be written without a configuration."""


class PeerMissingError(RuntimeError):
    """The peer can't be had here; the message says why."""


def jars(version: str) -> Path:
    """The folder with all jars of that release, fetched on the first call."""
    release = RELEASES.get(version, version)
    kafka = [f"org.apache.kafka:kafka_{_scala(version)}:{release}"]
    if release not in TOOLS:
        kafka.append(f"org.apache.kafka:kafka-tools:{release}")
    return _fetched(f"apache-kafka-{release}", [*kafka, _LOGGER])


def tools_jars(version: str) -> Path:
    """The same with the command-line tools in it: those of another release where this one's can't be had."""
    return jars(tools_release(version))


def tools_release(version: str) -> str:
    """The release whose tools, and whose Streams, go with that one's broker."""
    release = RELEASES.get(version, version)
    return TOOLS.get(release, release)


def _scala(version: str) -> str:
    """Of the jars; 2.13 from release 2.4 on."""
    return "2.12" if version.startswith(("2.0", "2.1", "2.2", "2.3")) else "2.13"


def streams_jars(version: str) -> Path:
    """The same for Kafka Streams; Kafka's clients are among them."""
    release = tools_release(version)
    return _fetched(f"kafka-streams-{release}", [f"org.apache.kafka:kafka-streams:{release}", _LOGGER])


def _fetched(name: str, artifacts: list[str]) -> Path:
    """The folder of that name in the cache with these artifacts (group:artifact:version) and what they need."""
    folder = CACHE / name
    if (folder / "complete").exists():
        return folder / "libs"
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissingError(f"{program} is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "\n".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    (folder / "pom.xml").write_text(_POM.format(name=name, dependencies=dependencies))
    fetched = subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=libs",
            _EXCLUDED,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if fetched.returncode != 0:
        raise PeerMissingError(f"Maven Central was not reached: {fetched.stdout.strip()[-300:]}")
    (folder / "complete").touch()
    return folder / "libs"


def compiled(source: Path, libs: Path) -> Path:
    """The folder with the classes of a Java source, compiled against these jars; again when the source is newer."""
    classes = libs.parent / "classes" / source.stem
    built = classes / f"{source.stem}.class"
    if built.exists() and built.stat().st_mtime > source.stat().st_mtime:
        return classes
    if shutil.which("javac") is None:
        raise PeerMissingError("javac is not installed")
    classes.mkdir(parents=True, exist_ok=True)
    command = ["javac", "--release", "11", "-cp", f"{libs}/*", "-d", str(classes), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{source.name} does not compile: {done.stderr[-2000:]}")
    return classes


def java(version: str, main: str, *arguments: str, options: tuple[str, ...] = ("-Xmx512m",)) -> list[str]:
    """The command line that runs one of Kafka's main classes, named as in 4.1, or a program of ours."""
    libs = jars(version)
    if main not in _OF_THE_BROKER and main.startswith(("kafka.", "org.apache.kafka.")):
        libs = tools_jars(version)
        if libs != jars(version):
            main = _MOVED.get(main, main)
    return [
        "java",
        *options,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{libs}/*",
        main,
        *arguments,
    ]


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers_api_versions(port: int) -> bool:
    """True when a Kafka broker answers an ApiVersions request (version 0) on that port."""
    request = b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x05probe"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            return connection.recv(8)[4:8] == b"\x00\x00\x00\x07"
    except OSError:
        return False


def has_controller(port: int) -> bool:
    """True when the broker on that port names a controller: until then it answers, but makes no topics. With KRaft it
    names a broker that is not fenced, and 3.3 answers while it still is."""
    request = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x05probe\x00\x00\x00\x00"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            answer = connection.recv(size, socket.MSG_WAITALL)
    except OSError:
        return False
    # No topics were asked for: the controller's id and their number are the last eight bytes.
    return len(answer) > 12 and int.from_bytes(answer[-8:-4], "big", signed=True) >= 0


class ApacheKafka:
    """One broker-and-controller process with the JVM settings of Kafka's own start scripts. Same shape as kafkapy's
    BrokerProcess. With `zookeeper` (host:port/chroot) a broker of that cluster, up to 3.9; releases before 3.3 start a
    ZooKeeper of their own where none is given.
    """

    def __init__(
        self,
        version: str,
        data_dir: Path | None = None,
        overrides: dict[str, str] | None = None,
        *,
        zookeeper: str = "",
    ) -> None:
        self.version = version
        self.zookeeper = zookeeper
        self._temporary = tempfile.TemporaryDirectory(prefix="apache-kafka-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary else Path(data_dir or ".")
        self.overrides = dict(overrides or {})
        self.options: list[str] = []
        """Further options of the JVM, such as -Djava.security.krb5.conf=..."""
        self.port = free_port()
        self.controller_port = free_port()
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        """Of a cluster that is formatted at the first start; those of one cluster have the same."""
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = self.data_dir / "broker.log"
        self._own_zookeeper: ZooKeeper | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def with_quorum(self) -> bool:
        """Whether it is its own controller, without ZooKeeper."""
        return not self.zookeeper and not RELEASES.get(self.version, self.version).startswith(WITH_ZOOKEEPER)

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the broker is not running")
        return self.process.pid

    def start(self, timeout_s: float = 300.0) -> ApacheKafka:
        jars(self.version)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "server.properties"
        if not self.zookeeper and RELEASES.get(self.version, self.version).startswith(WITH_ZOOKEEPER):
            from peers.zookeeper import ZooKeeper  # which needs this module

            self._own_zookeeper = ZooKeeper(self.data_dir / "zookeeper").__enter__()
            self.zookeeper = self._own_zookeeper.connect
        release = RELEASES.get(self.version, self.version)
        roles = self._zookeeper_keys() if self.zookeeper else self._kraft_keys()
        keys = {
            **roles,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **({} if release.startswith(WITHOUT_QUEUES) else QUEUES),
            "group.initial.rebalance.delay.ms": "0",
        } | self.overrides
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        if not self.zookeeper and not (self.data_dir / "logs" / "meta.properties").exists():
            subprocess.run(
                java(self.version, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(config)),
                check=True,
                capture_output=True,
            )
        options = (
            "-Xmx1G",
            "-Xms1G",
            "-server",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
            "-Djava.awt.headless=true",
            *self._resolver(),
            *self.options,
        )
        command = java(self.version, "kafka.Kafka", str(config), options=options)
        deadline = time.monotonic() + timeout_s
        self.process = process = self._launch(command)
        while time.monotonic() < deadline and (process.poll() is None or self._is_registered()):
            if process.poll() is not None:
                self.process = process = self._launch(command)
            elif answers_api_versions(self.port) and has_controller(self.port):
                return self
            time.sleep(0.05)
        tail = self.log_path.read_bytes()[-2000:].decode(errors="replace")
        self.kill()
        self._end_zookeeper()
        raise RuntimeError(f"Apache Kafka {self.version} did not start: {tail}")

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log_path.open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _is_registered(self) -> bool:
        """Whether it ended because ZooKeeper still has a session of the one that was killed before."""
        return b"NodeExists" in self.log_path.read_bytes()

    def _resolver(self) -> list[str]:
        """From Java 14 on the ZooKeeper client of releases before 2.4 makes 127.0.0.1/<unresolved> of an address."""
        if not self.zookeeper or _scala(self.version) == "2.13":
            return []
        hosts = self.data_dir / "hosts"
        hosts.write_text(f"127.0.0.1 127.0.0.1/<unresolved> localhost {socket.gethostname()}\n")
        return [f"-Djdk.net.hosts.file={hosts}"]

    def _kraft_keys(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
        }

    def _zookeeper_keys(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": self.zookeeper,
            # One that was killed can be started again only when its session is over.
            "zookeeper.session.timeout.ms": "6000",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }

    def stop(self, timeout_s: float = 60.0) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def _end_zookeeper(self) -> None:
        if self._own_zookeeper is not None:
            self._own_zookeeper.__exit__(None, None, None)
            self._own_zookeeper = None
            self.zookeeper = ""

    def remove(self) -> None:
        self.kill()
        self._end_zookeeper()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()
