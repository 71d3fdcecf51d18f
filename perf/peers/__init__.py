"""The brokers that are measured side by side.

Every peer has the shape of `kafkapy.testing.broker_process.BrokerProcess`: start, stop, kill, remove, port, pid,
data_dir. A peer that cannot be had here raises PeerMissingError from `prepare`, with the reason; it is reported, never
left out in silence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure

from kafkapy.testing.broker_process import BrokerProcess
from peers import apache_kafka, kfake, limit
from peers.apache_kafka import PeerMissingError

__all__ = ["ALL", "KAFKAPY", "LIMIT", "Peer", "PeerMissingError", "by_name"]

# Topics come and go between the measurements; their files are to be gone soon, too. All else is as by default.
SOON_DELETED = {"log.segment.delete.delay.ms": "100"}
# While another one is measured; it is not to be fenced for it.
STANDS_STILL = {"broker.session.timeout.ms": "60000"}
OTHER_TREE = "KAFKAPY_OTHER_TREE"
"""The environment variable that names a second work tree, whose broker is measured beside this one."""


@dataclass(frozen=True)
class Peer:
    """One kind of broker: `prepare` gets what it needs and gives its version, `make` gives a broker, not started."""

    name: str
    title: str
    prepare: Callable[[], str]
    make: Callable[[Path, dict[str, str]], Any]
    is_apache: bool = False


def _kafkapy_version() -> str:
    from kafkapy.version import __version__

    return __version__


def _apache(release: str) -> Peer:
    def prepare() -> str:
        apache_kafka.jars(release)
        return apache_kafka.RELEASES[release]

    def make(data_dir: Path, overrides: dict[str, str]) -> Any:
        return apache_kafka.ApacheKafka(release, data_dir, STANDS_STILL | overrides)

    return Peer(f"apache-{release}", f"Apache Kafka {apache_kafka.RELEASES[release]}", prepare, make, is_apache=True)


def _redpanda() -> str:
    where = shutil.which("redpanda")
    if where is None:
        raise PeerMissingError(
            "not on PyPI, crates.io, npm, the Go proxy, Maven Central or in Debian; no program `redpanda` is installed"
        )
    raise PeerMissingError(f"{where} is installed, but nothing here starts it yet")


def _tansu() -> str:
    raise PeerMissingError(
        "on crates.io as source only, 824 crates to compile, which was given up here; and without a storage engine "
        "that keeps a log in local files"
    )


def _never(_data_dir: Path, _overrides: dict[str, str]) -> Any:
    raise PeerMissingError("cannot be had here")


def _of_tree(tree: Path, data_dir: Path, overrides: dict[str, str]) -> Any:
    # With its modules compiled beforehand, as those of an installed package are.
    environment = {
        "PYTHONPATH": str(tree),
        # Else the working directory comes first, which is often another tree.
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(measure.CACHE / "pycache"),
    }
    return BrokerProcess(data_dir, overrides, environment=environment)


def _kafkapy(data_dir: Path, overrides: dict[str, str]) -> Any:
    return _of_tree(Path(__file__).parents[2], data_dir, overrides)


def _other_tree() -> Path:
    tree = Path(os.environ.get(OTHER_TREE, "nowhere"))
    if not (tree / "kafkapy").is_dir():
        raise PeerMissingError(f"{OTHER_TREE} names no work tree of kafkapy with built kernels")
    return tree


def _other_version() -> str:
    tree = _other_tree()
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or str(tree)


def _other(data_dir: Path, overrides: dict[str, str]) -> Any:
    return _of_tree(_other_tree(), data_dir, overrides)


KAFKAPY = Peer("kafkapy", "kafkapy", _kafkapy_version, _kafkapy)
OTHER = Peer("kafkapy-other", "kafkapy of another commit", _other_version, _other)
LIMIT = Peer("limit", "the machine's limit", limit.prepare, limit.Limit)
ALL: list[Peer] = [
    KAFKAPY,
    _apache("3.9"),
    _apache("4.x"),
    Peer("kfake", "kfake (franz-go)", kfake.prepare, kfake.KFake),
    Peer("tansu", "tansu", _tansu, _never),
    Peer("redpanda", "Redpanda", _redpanda, _never),
    *([OTHER] if OTHER_TREE in os.environ else []),
    LIMIT,
]


def by_name(name: str) -> Peer:
    """Raises KeyError."""
    return {peer.name: peer for peer in ALL}[name]


def started(peer: Peer, data_dir: Path, overrides: dict[str, str] | None = None) -> Any:
    """A running broker with an empty data directory."""
    data_dir.mkdir(parents=True, exist_ok=True)
    broker = peer.make(data_dir, SOON_DELETED | (overrides or {}))
    broker.start()
    return broker


def seconds_to(call: Callable[[], object]) -> float:
    """Wall time of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
