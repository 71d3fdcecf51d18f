"""A cluster of brokers on this machine, with etcd or ZooKeeper, until Ctrl-C: `make cluster`.

    scripts/cluster.py [--brokers 3] [--store etcd] [--port 9092] [--directory data/cluster]

Data and configurations stay in the directory, so that the next start continues with them. Each broker has a
server.properties there, with which a stopped one starts again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import create_connection

ROOT = Path(__file__).resolve().parent.parent
ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")
START_S = 60.0
STOP_S = 60.0
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin"


class StartError(Exception):
    """A sentence about what cannot start."""


def etcd(directory: Path, port: int) -> tuple[list[str], dict[str, str], Callable[[], bool]]:
    """(command, keys of the brokers, whether it serves)."""
    program = shutil.which("etcd", path=SEARCHED)
    if program is None:
        raise StartError("etcd is not installed: apt-get install etcd-server, or --store zookeeper")
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    command = [
        program, "--name", "cluster", "--data-dir", str(directory), "--listen-client-urls", client,
        "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        "--initial-cluster", f"cluster={peer}", "--logger", "zap", "--log-level", "warn",
    ]  # fmt: skip

    def serves() -> bool:
        try:
            with urllib.request.urlopen(f"{client}/health", timeout=2) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    return command, {"kafkapy.metadata.store": "etcd", "kafkapy.etcd.endpoints": client}, serves


def zookeeper(directory: Path, port: int) -> tuple[list[str], dict[str, str], Callable[[], bool]]:
    """(command, keys of the brokers, whether it serves)."""
    if not ZOOKEEPER_JAR.exists() or shutil.which("java") is None:
        raise StartError("ZooKeeper is not installed: apt-get install zookeeper, or --store etcd")
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime=1000\ndataDir={directory}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"

    def serves() -> bool:
        try:
            with create_connection(("127.0.0.1", port), 2) as probe:
                probe.sendall(b"srvr")
                return bool(probe.recv(1))
        except OSError:
            return False

    command = ["java", "-Xmx128m", "-cp", str(ZOOKEEPER_JAR), main, str(config)]
    return command, {"zookeeper.connect": f"127.0.0.1:{port}"}, serves


STORES = {"etcd": etcd, "zookeeper": zookeeper}


def properties(broker: int, port: int, directory: Path, count: int, store: dict[str, str]) -> str:
    """A broker's server.properties."""
    copies = min(3, count)
    keys = {
        "broker.id": str(broker),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "logs"),
        "broker.rack": f"rack-{broker}",
        **store,
        "num.partitions": "3",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(max(1, copies - 1)),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(1, copies - 1)),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(max(1, copies - 1)),
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


class Processes:
    """Owns the processes of the cluster. Their output goes into files of the directory."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start a process that Ctrl-C at the terminal does not reach."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self.running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=ROOT,
            )

    def wait_for(self, name: str, serves: Callable[[], bool], log: Path) -> None:
        """Return once the process serves. StartError with the end of its output."""
        deadline = time.monotonic() + START_S
        while not serves():
            if self.running[name].poll() is not None or time.monotonic() > deadline:
                raise StartError(f"{name} did not start; {log} ends with: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop all in the reverse order of their start: brokers first, the store last."""
        for name, process in reversed(list(self.running.items())):
            if process.poll() is None:
                print(f"Stopping {name}.", flush=True)
                process.terminate()
                try:
                    process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def run(arguments: argparse.Namespace) -> None:
    """Start everything, and wait for a signal."""
    directory = Path(arguments.directory).absolute()
    processes = Processes()
    wake: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: wake.append(got))
    try:
        command, keys, serves = STORES[arguments.store](directory / arguments.store, arguments.port + 1000)
        log = directory / f"{arguments.store}.log"
        processes.start(arguments.store, command, log)
        processes.wait_for(arguments.store, serves, log)
        servers = []
        for broker in range(1, arguments.brokers + 1):
            home, port = directory / f"broker-{broker}", arguments.port + broker - 1
            home.mkdir(parents=True, exist_ok=True)
            config = home / "server.properties"
            config.write_text(properties(broker, port, home, arguments.brokers, keys))
            out = home / "broker.log"
            name = f"broker {broker}"
            begin = out.stat().st_size if out.exists() else 0
            processes.start(name, [sys.executable, "-m", "kafkapy.tools.server", str(config)], out)
            processes.wait_for(name, lambda out=out, begin=begin: b"msg=started" in out.read_bytes()[begin:], out)  # type: ignore[misc]
            servers.append(f"127.0.0.1:{port}")
            print(
                f"Broker {broker} serves {servers[-1]} (process {processes.running[name].pid}, {config}).", flush=True
            )
        print(f"The cluster is up: export KAFKAPY_BOOTSTRAP_SERVER={','.join(servers)}", flush=True)
        print("Ctrl-C stops it. kafkapy cluster health shows its state.", flush=True)
        ended: set[str] = set()
        while not wake:
            for name, process in processes.running.items():
                if process.poll() is not None and name not in ended:
                    ended.add(name)
                    print(f"{name.capitalize()} has ended with exit code {process.returncode}.", flush=True)
            time.sleep(0.2)
    finally:
        processes.stop()


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and run. The exit code."""
    parser = argparse.ArgumentParser(description="A cluster of brokers on this machine.")
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers (default 3)")
    parser.add_argument("--store", choices=sorted(STORES), default="etcd", help="metadata store (default etcd)")
    parser.add_argument("--port", type=int, default=9092, help="port of the first broker (default 9092)")
    parser.add_argument("--directory", default="data/cluster", help="data and configurations (default data/cluster)")
    try:
        run(parser.parse_args(arguments))
    except StartError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
