"""The machine's own limit in the shape of a broker (native/limit.c), and of a cluster (native/leader.c, follower.c).

Both serve the load generator only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import measure


def prepare() -> str:
    """Raises PeerMissingError where there is no C compiler."""
    from peers.apache_kafka import PeerMissingError

    try:
        for name in ("limit", "leader", "follower"):
            measure.native(name)
    except RuntimeError as error:
        raise PeerMissingError(str(error)) from None
    return "one thread, C"


class Limit:
    """Owns the process; `overrides["batch.bytes"]` is the size of batches to be fetched, `batches` their number.

    With `overrides["tls.pem"]`, a file of a key and its certificate, it serves TLS on `secure_port`, which is its only
    one.
    """

    def __init__(self, data_dir: Path, overrides: dict[str, str]) -> None:
        self.data_dir = data_dir
        self.batch_bytes = int(overrides.get("batch.bytes", 16384))
        self.pem = overrides.get("tls.pem")
        self.port = 0
        self.batches = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the limit is not running")
        return self.process.pid

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [str(measure.native("limit")), str(self.data_dir), str(self.batch_bytes)]
        if self.pem:
            command.append(self.pem)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        if len(said) != 2:
            raise RuntimeError("the limit did not start")
        self.port, self.batches = int(said[0]), int(said[1])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        self.kill()
        return 0

    remove = kill


class ReplicatedLimit:
    """Owns the processes of a leader and its two followers of one topic; each has one thread."""

    FOLLOWERS = (1, 2)

    def __init__(self, data_dir: Path, topic: str, partitions: int) -> None:
        self.data_dir = data_dir
        self.topic = topic
        self.partitions = partitions
        self.port = 0
        self.leader: subprocess.Popen[bytes] | None = None
        self.followers: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> list[int]:
        """The processes that run, the leader first."""
        running = [self.leader, *self.followers.values()]
        return [each.pid for each in running if each is not None]

    @property
    def leader_dir(self) -> Path:
        return self.data_dir / "leader"

    def follower_dir(self, replica: int) -> Path:
        return self.data_dir / f"follower-{replica}"

    def start(self) -> None:
        """Raises RuntimeError when the leader does not start."""
        self.leader_dir.mkdir(parents=True)
        command = [str(measure.native("leader")), str(self.leader_dir), str(self.partitions)]
        self.leader = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.leader.stdout is not None
        said = self.leader.stdout.readline()
        if not said:
            raise RuntimeError("the leader of the limit did not start")
        self.port = int(said)
        for replica in self.FOLLOWERS:
            self.followers[replica] = subprocess.Popen(self._follower(replica))

    def _follower(self, replica: int, **named: object) -> list[str]:
        self.follower_dir(replica).mkdir()
        named |= {"port": self.port, "topic": self.topic, "partitions": self.partitions, "replica": replica}
        return [str(measure.native("follower")), *measure.options(**named), str(self.follower_dir(replica))]

    def caught_up(self, replica: int) -> dict[str, Any]:
        """Replaces a follower by an empty one, which copies all that the leader has; gives what it measured.

        Raises LoadError when it ends with an error.
        """
        old = self.followers.pop(replica)
        old.kill()
        old.wait()
        shutil.rmtree(self.follower_dir(replica))
        size = sum(path.stat().st_size for path in self.leader_dir.iterdir())
        command = self._follower(replica, bytes=size)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise measure.LoadError(done.stderr.strip()[-500:] or f"the follower ended with {done.returncode}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def kill(self) -> None:
        """Ends all processes."""
        for each in [*self.followers.values(), *([self.leader] if self.leader else [])]:
            each.kill()
            each.wait()
        self.followers = {}
        self.leader = None
